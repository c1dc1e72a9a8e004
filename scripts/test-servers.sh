#!/bin/sh
# test-servers.sh DIR quick|all: the server tests on each server of DIR/bin, one after the other. OTHERS=1: not on the
# first of them, the machine's own, where `make test` has run.
# Prints the version of each server before its tests, so that a log states what was tested. The module is the release
# build. TESTED, from the Makefile, has the packages and features that are compiled already.
set -eu
cd "$(dirname "$0")/.."
dir=$1 which=$2
LOCK_MODULE=$PWD/target/release/libredis_lock.so
LOCK_OLD_SERVERS=$(find "$PWD/$dir/bin/" -name 'redis-6.?' | sort | paste -sd: -)
export LOCK_MODULE LOCK_OLD_SERVERS

# tests SERVER OPTIONS: the whole suite on this server, each of its servers with these options.
failed=
tests() {
    printf '\n== %s: %s%s\n' "$(basename "$1")" "$("$1" --version)" "${2:+ with$2}"
    # shellcheck disable=SC2086 # options, one a word
    LOCK_SERVER=$1 LOCK_SERVER_OPTIONS=$2 \
        cargo test $TESTED --test server -- --test-threads "${THREADS:-4}" ||
        failed="$failed $(basename "$1")$2"
}

# One path a line; a path may have spaces.
others=${OTHERS:+$(($(wc -l <"$dir/$which") > 1))}
while read -r server <&3; do
    if [ "${others:-0}" -eq 1 ]; then
        others=0
        continue
    fi
    tests "$server" ''
    if [ "$which" = all ]; then tests "$server" " $(scripts/io-threads.sh "$server")"; fi
done 3<"$dir/$which"
if [ -n "$failed" ]; then
    echo "failed on:$failed"
    exit 1
fi
