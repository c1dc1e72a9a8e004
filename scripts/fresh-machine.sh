#!/bin/sh
# fresh-machine.sh [CASE...]: tests a user's first command on a new machine. Each case gets a minimal Debian of
# its own (debootstrap's minbase and make), with this tree in a directory whose name has a space, and runs the
# commands of README.
#
#   root   Debian 12, as root: make run; the command that it announces must reach the server, and a second make
#          run names another port; then tests of the client (TESTS: some of them, by name).
#   user   Debian 13, as a user without sudo: make run names what to install; root runs that line; make run.
#
# In no case may a service have been installed, enabled or started. Needs root, debootstrap and the machine's
# own mirror, crate registry and certificates; if one of these is missing, the script says so and ends with 0.
# The base systems and their packages are kept in target/fresh. The mounts and the processes are in namespaces of
# their own, so they end with the script in every case.
set -eu
cd "$(dirname "$0")/.."
fresh=$PWD/target/fresh

# shellcheck disable=SC2034 # for minimal-debian.sh
tested='the first command on a fresh machine'
. scripts/minimal-debian.sh

# The network is the machine's, and minutes pass before the port is used: a lock on a file of its number keeps it from
# other runs until the last process of this one ends.
reserve_port() {
    . scripts/ports.sh
    ports=${TMPDIR:-/tmp}/redis-lock-fresh-ports
    mkdir -p "$ports"
    FRESH_PORT=17000
    until exec 9>"$ports/$FRESH_PORT" && flock -n 9 && ! taken $FRESH_PORT; do
        FRESH_PORT=$((FRESH_PORT + 1))
        [ $FRESH_PORT -lt 18000 ] || skip 'No port is free.'
    done
}

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || skip 'It needs root.'
    scripts/setup.sh fresh || skip 'It needs debootstrap.'
    unshare --mount --pid --fork --kill-child true 2>/dev/null || skip 'There may be no namespaces here (unshare).'
    if [ $# -eq 0 ]; then set -- root user; fi
    if [ -z "${FRESH_PORT:-}" ]; then reserve_port; fi
    export FRESH_PORT
    exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$PWD/scripts/fresh-machine.sh" --inside "$@"
fi
shift
# The first process of a namespace gets only the signals that it handles.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

find_mirror

# machine NAME RELEASE: a copy of the base at $root that has the machine's ways to the network.
machine() {
    base "$2"
    echo "fresh machine: $1 on $2"
    root=$fresh/$1/root
    rm -rf "${fresh:?}/$1"
    mkdir -p "$root" "$fresh/$1/upper" "$fresh/$1/work" "$fresh/debs-$2"
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$fresh/$1/upper,workdir=$fresh/$1/work" "$root" 2>/dev/null ||
        cp -a "$base/." "$root/"
    mount -t proc proc "$root/proc"
    mount --bind "$fresh/debs-$2" "$root/var/cache/apt/archives"
    mkdir -p "$root/var/cache/apt/archives/partial" "$root/root/.cargo"
    adopt "$root"
    for file in config.toml config; do
        if [ -f "${CARGO_HOME:-$HOME/.cargo}/$file" ]; then cp "${CARGO_HOME:-$HOME/.cargo}/$file" "$root/root/.cargo/"; fi
    done
    # What a maintainer's script takes for a system that systemd has booted.
    mkdir -p "$root/run/systemd/system"
    typed root / "$quiet_apt update && $quiet_apt install make" >/dev/null 2>&1 || skip 'apt reaches no mirror from a fresh machine.'
    rm -rf "$root"/var/lib/apt/lists/*
    typed root / 'useradd -m lena && cp -r /root/.cargo /home/lena/ && chown -R lena: /home/lena'
    services >"$fresh/$1/services"
}

# typed USER DIRECTORY COMMAND: in a login's environment, and with the ways to the network.
typed() {
    user=$1 directory=$2 command=$3
    case $user in root) home=/root ;; *) home=/home/$user ;; esac
    # shellcheck disable=SC2046,SC2016 # NAME=VALUE words; none of these has spaces
    env -i HOME="$home" USER="$user" TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        $(env | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|CARGO_(NET|HTTP)_[A-Z_]*|CARGO_PROFILE_[A-Z_]*)=[^ ]*$') \
        chroot --userspec="$user" "$root" sh -c 'cd "$1" && eval "$2"' sh "$directory" "$command"
}

# The tree as it is, committed or not, in the home of USER.
clone() {
    case $1 in root) tree="/root/a clone" ;; *) tree="/home/$1/a clone" ;; esac
    mkdir -p "$root$tree"
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files --cached --others --exclude-standard | sort -u | while read -r file; do
            if [ -e "$file" ]; then printf '%s\n' "$file"; fi
        done >"$fresh/files"
    else
        find . \( -path ./target -o -path ./.git -o -path ./.servers \) -prune -o -type f -print >"$fresh/files"
    fi
    tar -cf - -T "$fresh/files" | tar -xf - -C "$root$tree"
    typed root / "chown -R $1: '$tree'"
}

# What a package's service leaves behind: units, their enablement, init scripts.
services() {
    (cd "$root" && find usr/lib/systemd lib/systemd etc/systemd etc/init.d etc/rc?.d \
        \( -type f -o -type l \) 2>/dev/null | sort)
}

fail() {
    printf 'fresh machine: FAILED: %s\n' "$1" >&2
    [ -z "${2:-}" ] || tail -n "${3:-60}" "$2" >&2
    exit 1
}

no_service() {
    services >"$fresh/after"
    diff "$fresh/$1/services" "$fresh/after" >&2 || fail 'setup has installed a service'
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" 2>/dev/null) in
        */redis-* | */valkey-*) fail "a server runs that no test has started: $(tr '\0' ' ' <"$process/cmdline")" ;;
        esac
    done
}

# run USER: make run in the background, until the advised command gets the answer of the module.
run() {
    log=$fresh/run.log
    : >"$log"
    typed "$1" "$tree" "exec make run PORT=$port" >"$log" 2>&1 &
    pid=$!
    until advice=$(sed -n 's/^lock server on .*try in another window: //p' "$log") && [ -n "$advice" ]; do
        kill -0 $pid 2>/dev/null || fail 'make run' "$log"
        sleep 0.2
    done
    typed "$1" "$tree" "$advice" >"$fresh/help.log" 2>&1 || fail "$advice" "$fresh/help.log"
    grep -q 'LOCK.ACQUIRE' "$fresh/help.log" || fail "$advice does not reach the module" "$fresh/help.log"
    # A second run: the port is in use, and the message names a free one.
    if typed "$1" "$tree" "make run PORT=$port" >"$fresh/second.log" 2>&1; then fail 'a second server on one port' "$fresh/second.log"; fi
    grep -q "port $port on 127.0.0.1 is in use.*Try: make run PORT=[0-9]" "$fresh/second.log" || fail 'no other port is named' "$fresh/second.log"
    stop
}

# Like Ctrl-C: a signal to every process of the command.
stop() {
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2>/dev/null <"$process/cmdline") in
        *-server*":$port"*) kill -INT "${process#/proc/}" ;;
        esac
    done
    wait $pid 2>/dev/null || :
}

# Built without optimization, which takes longer than all other steps together.
: "${CARGO_PROFILE_RELEASE_LTO=off}" "${CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16}" "${CARGO_PROFILE_RELEASE_OPT_LEVEL=0}"
export CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_PROFILE_RELEASE_OPT_LEVEL
port=$FRESH_PORT

started=$(date +%s)
for case in "$@"; do
    begun=$(date +%s)
    case $case in
    root)
        machine root bookworm
        clone root
        run root
        no_service root
        echo "fresh machine: root: make run works ($(($(date +%s) - begun)) s); the client's tests"
        typed root "$tree" "make test-client TESTS='${TESTS-basics:: run:: look:: tls::}'" >"$fresh/client.log" 2>&1 ||
            fail 'make test-client' "$fresh/client.log"
        grep '^test result' "$fresh/client.log"
        no_service root
        ;;
    user)
        machine user trixie
        clone lena
        if typed lena "$tree" 'make run' >"$fresh/refused.log" 2>&1 </dev/null; then fail 'make run without compiler and Rust' "$fresh/refused.log"; fi
        line=$(sed -n 's/^As root: //p' "$fresh/refused.log")
        [ -n "$line" ] || fail 'the message does not name what to install' "$fresh/refused.log"
        echo "fresh machine: the message names: $line"
        typed root / "$(printf %s "$line" | sed 's/apt-get /DEBIAN_FRONTEND=noninteractive apt-get -qq -y /g')" >"$fresh/install.log" 2>&1 ||
            fail 'the line that the message names' "$fresh/install.log"
        run lena
        no_service user
        ;;
    *) fail "no case $case" ;;
    esac
    for mounted in "$root/var/cache/apt/archives" "$root/proc" "$root"; do umount "$mounted" 2>/dev/null || :; done
    rm -rf --one-file-system "${fresh:?}/$case"
    echo "fresh machine: $case: passed ($(($(date +%s) - begun)) s)"
done
echo "fresh machine: all passed ($(($(date +%s) - started)) s)"
