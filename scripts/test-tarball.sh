#!/bin/sh
# test-tarball.sh: builds the archives of target/dist once more, in a clone in another directory, and compares the bytes;
# then loads the module of this machine's archive into LOCK_SERVER, and arm64's into a server of Debian under qemu-user.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
dist=$PWD/target/dist
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fail() { echo "test-tarball: FAILED: $1" >&2; exit 1; }

(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || fail 'checksums'

mkdir -p "$work/a longer name"
git ls-files --cached --others --exclude-standard | tar -cf - -T - | tar -xf - -C "$work/a longer name"
# The targets that could be built here.
# shellcheck disable=SC2046 # words
set -- $(find "$dist" -name '*.tar.gz' | sed 's/.*-\([^-]*\)-linux-gnu.tar.gz/\1-unknown-linux-gnu/')
(cd "$work/a longer name" && scripts/tarball.sh "$@") >"$work/log" 2>&1 || { cat "$work/log" >&2; fail 'the second build'; }
for file in "$dist"/*; do
    cmp "$file" "$work/a longer name/target/dist/${file##*/}" || fail "another directory gives another ${file##*/}"
done
echo "test-tarball: $(find "$dist" -type f | wc -l) files, the same bytes in two directories"

# loads CLIENT COMMAND...: the server of this command answers LOCK.ACQUIRE over its socket.
loads() {
    client=$1
    shift
    (cd "$archive" && sha256sum --quiet -c SHA256SUMS) || fail "checksums in $archive"
    "$@" --port 0 --unixsocket "$work/socket" --save '' --dir "$work" --logfile "$work/log" --loadmodule "$archive/libredis_lock.so" >"$work/errors" 2>&1 &
    pid=$!
    until [ "$("$client" -s "$work/socket" PING 2>/dev/null)" = PONG ]; do
        kill -0 $pid 2>/dev/null || { tail -n 5 "$work/log" "$work/errors" >&2; fail "$archive does not load"; }
        sleep 0.1
    done
    [ "$("$client" -s "$work/socket" LOCK.ACQUIRE key owner)" -gt 0 ] || fail 'LOCK.ACQUIRE'
    "$client" -s "$work/socket" SHUTDOWN NOSAVE >/dev/null 2>&1 || :
    wait $pid || :
    pid=
    rm -f "$work/log" "$work/socket"
    echo "test-tarball: ${archive##*/} loads, LOCK.ACQUIRE is answered"
}

for file in "$dist"/*.tar.gz; do
    tar -xzf "$file" -C "$work"
    archive=$work/$(basename "$file" .tar.gz)
    client=$(command -v redis-cli || command -v valkey-cli)
    case $file in
    *-"$(uname -m)"-*) loads "$client" "$LOCK_SERVER" ;;
    *-aarch64-*)
        if ! command -v qemu-aarch64-static >/dev/null; then
            echo 'test-tarball: not loaded: the module for arm64 (apt-get install qemu-user-static)' >&2
            continue
        fi
        # A server of Debian for arm64 with its libraries, unpacked.
        (
            . tests/apt.sh
            private_apt "$work/apt" deb bookworm
            echo 'APT::Architecture "arm64"; APT::Architectures { "arm64"; };' >>"$work/apt/conf"
            apt-get -qq update && apt-get -qq -y --download-only install redis-tools
        ) </dev/null >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; fail 'no server for arm64'; }
        for deb in "$work"/apt/cache/archives/*.deb; do dpkg -x "$deb" "$work/arm64"; done
        ln -s redis-check-rdb "$work/arm64/usr/bin/redis-server"
        loads "$client" qemu-aarch64-static -L "$work/arm64" "$work/arm64/usr/bin/redis-server"
        ;;
    esac
done
