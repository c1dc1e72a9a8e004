#!/bin/sh
# test-image.sh: unpacks the image of target/dist, runs its command as the user that the values for valkey-helm name, and
# starts LOCK_SERVER with the copied module and the configuration of these values. Needs root and umoci.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
values=packaging/kubernetes/values.yaml
archive=target/dist/redis-lock-module-$version-${host%%-*}-oci.tar
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
fail() { echo "test-image: FAILED: $1" >&2; exit 1; }

mkdir "$work/layout"
tar -C "$work/layout" -xf "$archive"
umoci unpack --image "$work/layout:$version" "$work/bundle"
root=$work/bundle/rootfs
user=$(sed -n 's/.*runAsUser: //p' $values)

# The command of the image, one argument a line.
sed -n '/"args": \[/,/\]/s/^[[:space:]]*"\(.*\)",\{0,1\}$/\1/p' "$work/bundle/config.json" |
    sed 's/\\"/"/g; s/\\u0026/\&/g' >"$work/words"
set --
while IFS= read -r word; do set -- "$@" "$word"; done <"$work/words"
[ $# -ge 2 ] || fail 'the image has no command'

if chroot --userspec="$user:$user" "$root" "$@" 2>"$work/errors"; then fail 'no volume, and no error'; fi
grep -q '/modules.*No such file' "$work/errors" || fail "without a volume: $(cat "$work/errors")"
mkdir "$root/modules"
chown "$user" "$root/modules"
chroot --userspec="$user:$user" "$root" "$@" || fail 'the module is not copied'
cmp "$root/libredis_lock.so" "$root/modules/libredis_lock.so" || fail 'the copy differs'

sed -n '/^valkeyConfig: |/,/^[^ ]/s/^  //p' $values | sed "s|/modules/|$root/modules/|" >"$work/server.conf"
grep -q '^loadmodule' "$work/server.conf" || fail 'the values load no module'
"$LOCK_SERVER" "$work/server.conf" --port 0 --unixsocket "$work/socket" --save '' --dir "$work" --logfile "$work/log" &
pid=$!
client=$(command -v redis-cli || command -v valkey-cli)
until [ "$("$client" -s "$work/socket" PING 2>/dev/null)" = PONG ]; do
    kill -0 $pid 2>/dev/null || { tail -n 5 "$work/log" >&2; fail 'the server does not start'; }
    sleep 0.1
done
[ "$("$client" -s "$work/socket" LOCK.ACQUIRE key owner)" -gt 0 ] || fail 'LOCK.ACQUIRE'
echo 'test-image: the image copies the module, and a server with the values of the chart answers LOCK.ACQUIRE'
