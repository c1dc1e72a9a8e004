#!/bin/sh
# fresh-machine.sh [CASE...]: plays README's two commands, make run and make test, whole, on new machines. A CASE is a
# user and a release of Debian; without one: root@12 user@12 root@13 user@13. Each gets a minimal Debian of its own
# (debootstrap's minbase and make), with this tree in a directory whose name has a space.
#
#   root@N  make installs what is missing.
#   user@N  has no sudo: make run names what to install; root runs that line; then both commands work.
#
# make run: the command that it announces must reach the server, and a second make run names another port. make test
# must pass. In no case may a service have been installed, enabled or started, by neither command.
#
# JOBS cases at a time (2). All keep what they have downloaded, packages and crates, in target/fresh for the next case,
# beside the base systems; cargo still asks its index. Each case starts with neither compiler nor Rust or server.
# Needs root, debootstrap and the machine's own mirror, crate registry and certificates; if one of these is missing, the
# script says so and ends with 0. The mounts and the processes of a case are in namespaces of their own, so they end
# with it in every case.
set -eu
cd "$(dirname "$0")/.."
fresh=$PWD/target/fresh

# shellcheck disable=SC2034 # for minimal-debian.sh
tested="README's commands on fresh machines"
. scripts/minimal-debian.sh

# say TEXT: a line of this case.
say() { echo "fresh machine: $case: $1"; }

# elapsed SINCE: in minutes and seconds.
elapsed() { seconds=$(($(date +%s) - $1)) && echo "$((seconds / 60)) min $((seconds % 60)) s"; }

release_of() {
    case $1 in
    root@12 | user@12) echo bookworm ;;
    root@13 | user@13) echo trixie ;;
    *) echo "fresh machine: no case $1; root@12 user@12 root@13 user@13" >&2 && return 2 ;;
    esac
}

if [ "${1:-}" != --inside ]; then
    if [ $# -eq 0 ]; then set -- root@12 user@12 root@13 user@13; fi
    for case; do release_of "$case" >/dev/null; done
    [ "$(id -u)" -eq 0 ] || skip 'It needs root.'
    scripts/setup.sh fresh || skip 'It needs debootstrap.'
    unshare --mount --pid --fork --kill-child true 2>/dev/null || skip 'There may be no namespaces here (unshare).'
    find_mirror
    for case; do
        base "$(release_of "$case")"
        rm -rf "${fresh:?}/$case" "$fresh/$case".*
    done
    started=$(date +%s)
    status=0
    printf '%s\n' "$@" | xargs -n 1 -P "${JOBS:-2}" unshare --mount --pid --fork --kill-child --mount-proc \
        --propagation private "$PWD/scripts/fresh-machine.sh" --inside || status=1
    not_played=
    for case; do
        if [ -e "$fresh/$case.passed" ]; then
            cat "$fresh/$case.passed"
            rm -rf --one-file-system "${fresh:?}/$case"
        else
            not_played="$not_played $case"
        fi
    done
    [ $status -eq 0 ] || { echo "fresh machine: FAILED:$not_played ($(elapsed "$started"))" >&2; exit 1; }
    [ -z "$not_played" ] || skip "Not played:$not_played."
    echo "fresh machine: all passed ($(elapsed "$started"))"
    exit
fi
case=$2
# The first process of a namespace gets only the signals that it handles.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# The network is the machine's, and minutes pass before the port is used: a lock on a file of its number keeps it from
# other cases and runs until the last process of this case ends.
reserve_port() {
    . scripts/ports.sh
    ports=${TMPDIR:-/tmp}/redis-lock-fresh-ports
    mkdir -p "$ports"
    port=17000
    until exec 9>"$ports/$port" && flock -n 9 && ! taken $port; do
        port=$((port + 1))
        [ $port -lt 18000 ] || skip 'No port is free.'
    done
}

# keep FROM TO: files of FROM that TO lacks. Other cases may do it at the same time.
keep() {
    (cd "$1" && find . -type f \( -name '*.deb' -o -name '*.crate' \) ! -path '*/partial/*') | while read -r file; do
        [ ! -e "$2/$file" ] || continue
        mkdir -p "$(dirname "$2/$file")"
        cp "$1/$file" "$2/$file.$case" && mv "$2/$file.$case" "$2/$file"
    done
}

# machine RELEASE: a copy of the base at $root that has the machine's ways to the network, and what earlier cases have
# downloaded.
machine() {
    base=$fresh/base-$1 debs=$fresh/debs-$1 crates=$fresh/crates own=$fresh/$case/debs
    root=$fresh/$case/root
    mkdir -p "$root" "$fresh/$case/upper" "$fresh/$case/work" "$own/partial" "$debs" "$crates"
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$fresh/$case/upper,workdir=$fresh/$case/work" "$root" 2>/dev/null ||
        cp -a "$base/." "$root/"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    find "$debs" -name '*.deb' -exec ln -t "$own" {} +
    mount --bind "$own" "$root/var/cache/apt/archives"
    adopt "$root"
    # What a maintainer's script takes for a system that systemd has booted.
    mkdir -p "$root/run/systemd/system"
    typed root / "$quiet_apt update && $quiet_apt install make" >/dev/null 2>&1 || skip 'apt reaches no mirror from a fresh machine.'
    rm -rf "$root"/var/lib/apt/lists/*
    if [ "$user" != root ]; then typed root / "useradd -m $user"; fi
    mkdir -p "$root$home/.cargo/registry"
    for file in config.toml config; do
        if [ -f "${CARGO_HOME:-$HOME/.cargo}/$file" ]; then cp "${CARGO_HOME:-$HOME/.cargo}/$file" "$root$home/.cargo/"; fi
    done
    cp -r "$crates" "$root$home/.cargo/registry/cache"
    clone
    services >"$fresh/$case/services"
}

# typed USER DIRECTORY COMMAND: in a login's environment, and with the ways to the network.
typed() {
    case $1 in root) at=/root ;; *) at=/home/$1 ;; esac
    # shellcheck disable=SC2046,SC2016 # NAME=VALUE words; none of these has spaces
    env -i HOME="$at" USER="$1" TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        $(env | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|CARGO_(NET|HTTP)_[A-Z_]*|CARGO_PROFILE_[A-Z_]*)=[^ ]*$') \
        chroot --userspec="$1" "$root" sh -c 'cd "$1" && eval "$2"' sh "$2" "$3"
}

# The tree as it is, committed or not, in the home of the user.
clone() {
    tree="$home/a clone"
    mkdir -p "$root$tree"
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files --cached --others --exclude-standard | sort -u | while read -r file; do
            if [ -e "$file" ]; then printf '%s\n' "$file"; fi
        done >"$fresh/$case/files"
    else
        find . \( -path ./target -o -path ./.git -o -path ./.servers \) -prune -o -type f -print >"$fresh/$case/files"
    fi
    tar -cf - -T "$fresh/$case/files" | tar -xf - -C "$root$tree"
    typed root / "chown -R $user: '$home'"
}

# What a package's service leaves behind: units, their enablement, init scripts.
services() {
    (cd "$root" && find usr/lib/systemd lib/systemd etc/systemd etc/init.d etc/rc?.d \
        \( -type f -o -type l \) 2>/dev/null | sort)
}

# fail WHY [LOG [LINES]]
fail() {
    printf 'fresh machine: %s: FAILED: %s\n' "$case" "$1" >&2
    [ -z "${2:-}" ] || tail -n "${3:-60}" "$2" >&2
    exit 1
}

no_service() {
    services >"$fresh/$case/after"
    diff "$fresh/$case/services" "$fresh/$case/after" >&2 || fail "$1 has installed a service"
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" 2>/dev/null) in
        */redis-* | */valkey-*) fail "$1 has left a server: $(tr '\0' ' ' <"$process/cmdline")" ;;
        esac
    done
}

# allow COMMAND: as a user, the command names what is missing, and root installs it.
allow() {
    [ "$user" != root ] || return 0
    log=$fresh/$case.refused.log
    if typed "$user" "$tree" "$1" >"$log" 2>&1 </dev/null; then fail "$1 without what it needs" "$log"; fi
    line=$(sed -n 's/^As root: //p' "$log")
    [ -n "$line" ] || fail "$1 does not name what to install" "$log"
    say "$1 names: $line"
    typed root / "$(printf %s "$line" | sed 's/apt-get /DEBIAN_FRONTEND=noninteractive apt-get -qq -y /g')" >"$fresh/$case.install.log" 2>&1 ||
        fail "the line that $1 names" "$fresh/$case.install.log"
}

# make run in the background, until the advised command gets the answer of the module.
run() {
    log=$fresh/$case.run.log
    : >"$log"
    typed "$user" "$tree" "exec make run PORT=$port" >"$log" 2>&1 &
    pid=$!
    until advice=$(sed -n 's/^lock server on .*try in another window: //p' "$log") && [ -n "$advice" ]; do
        kill -0 $pid 2>/dev/null || fail 'make run' "$log"
        sleep 0.2
    done
    help=$fresh/$case.help.log second=$fresh/$case.second.log
    typed "$user" "$tree" "$advice" >"$help" 2>&1 || fail "$advice" "$help"
    grep -q 'LOCK.ACQUIRE' "$help" || fail "$advice does not reach the module" "$help"
    # A second run: the port is in use, and the message names a free one.
    if typed "$user" "$tree" "make run PORT=$port" >"$second" 2>&1; then fail 'a second server on one port' "$second"; fi
    grep -q "port $port on 127.0.0.1 is in use.*Try: make run PORT=[0-9]" "$second" || fail 'no other port is named' "$second"
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

keep_downloads() {
    keep "$own" "$debs"
    if [ -d "$root$home/.cargo/registry/cache" ]; then keep "$root$home/.cargo/registry/cache" "$crates"; fi
}

# Built without optimization, which takes longer than all other steps together.
: "${CARGO_PROFILE_RELEASE_LTO=off}" "${CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16}" "${CARGO_PROFILE_RELEASE_OPT_LEVEL=0}"
export CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_PROFILE_RELEASE_OPT_LEVEL

started=$(date +%s)
case $case in root@*) user=root home=/root ;; *) user=lena home=/home/lena ;; esac
reserve_port
machine "$(release_of "$case")"

begun=$(date +%s)
allow 'make run'
run
no_service 'make run'
took="make run $(elapsed "$begun")"
say "$took"
keep_downloads

# What make run needs is all that make test needs.
begun=$(date +%s)
log=$fresh/$case.test.log
typed "$user" "$tree" 'make test' >"$log" 2>&1 </dev/null || fail 'make test' "$log" 120
no_service 'make test'
took="$took, make test $(elapsed "$begun")"
keep_downloads
say "$took, passed ($(elapsed "$started"))" >"$fresh/$case.passed"
say "passed ($(elapsed "$started"))"
