#!/bin/sh
# test-clients.sh [CLIENT...]: the tests of tests/clients with the packages for Rust, Java, Python, Go and Node, and with
# each client library and its helpers in examples (default: all), or with strings/LIBRARY, which locks with SET NX PX.
# Installs them from the package registries into target/clients. Those that cannot be installed here are named at the end,
# and do not fail the run. QUICK=1: fewer rounds, and no wait longer than 8 s. The Makefile sets TESTED (cargo's options).
set -eu
cd "$(dirname "$0")/.."
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
LOCK_PATIENCE=${LOCK_PATIENCE:-120} # some libraries' own limit is a minute
export LOCK_MODULE LOCK_SERVER LOCK_PATIENCE
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }
if [ -n "${QUICK:-}" ]; then export LOCK_CLIENTS_QUICK=1; fi

all=$(for run in tests/clients/*/run; do basename "$(dirname "$run")"; done)
wanted=${*:-$all}

# install_client NAME: installs it, unless the same files are installed already.
install_client() {
    source=tests/clients/$1 target=$PWD/target/clients/$1
    case $1 in
    strings/*) further='' ;;
    *-package) further="scripts/packages.sh scripts/test-node.sh Cargo.toml Cargo.lock LICENSE clients/${1%-package} examples/${1%-package}" ;;
    *) further=examples/$1 ;;
    esac
    # shellcheck disable=SC2086 # several paths
    files=$(find "$source" $further -type f ! -path '*/target/*' -exec sha256sum {} + | sort)
    if [ -f "$target/installed" ] && [ "$files" = "$(cat "$target/installed")" ]; then return 0; fi
    echo "installing $1"
    rm -rf "$target"
    mkdir -p "$target"
    "$source/install" "$target" >"$target/log" 2>&1 || return 1
    echo "$files" >"$target/installed"
}

installed='' missing=''
for client in $wanted; do
    if install_client "$client"; then installed="$installed $client"; else missing="$missing $client"; fi
done

failed=
# The command line of docs/TASKS.md.
# shellcheck disable=SC2086 # options
cargo build --quiet $TESTED -p redis-lock-cli --bin redis-lock
# A test's name begins with its client's or library's, dashes written as underscores.
# shellcheck disable=SC2046,SC2086 # TESTED is options, one a word
cargo test $TESTED --test clients -- page:: rust_example:: rust_tasks:: shell_tasks:: --test-threads 2 \
    $(for client in $installed; do
        echo "$client" | sed 's/-/_/g; s|/|::|; s/^\(.*\)_package$/\1_package:: \1_example:: \1_tasks/; /^strings/!s/$/::/'
    done) || failed=1
for client in $installed; do echo "ran: $client"; done
for client in $missing; do echo "not run: $client, $(tail -n 1 "target/clients/$client/log") (target/clients/$client/log)"; done
[ -z "$failed" ]
