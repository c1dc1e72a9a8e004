#!/bin/sh
# The two windows of the README, played on a server of their own.
set -eu
cd "$(dirname "$0")/.."
server=$(scripts/server.sh)
cli=$(command -v redis-cli || command -v valkey-cli)
dir=$(mktemp -d)

# A free port: the first on which nobody answers and the server starts.
port=7600
pid=
until [ -n "$pid" ]; do
    port=$((port + 1))
    "$server" --port $port --bind 127.0.0.1 --save "" --dir "$dir" --logfile "$dir/log" \
        --loadmodule "$PWD/target/release/libredis_lock.so" &
    pid=$!
    tries=0
    until grep -q 'Ready to accept' "$dir/log" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ] || ! kill -0 $pid 2>/dev/null; then pid=; rm -f "$dir/log"; break; fi
        sleep 0.05
    done
    [ $port -lt 7700 ] || { echo 'no free port' >&2; exit 1; }
done
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null || true; rm -rf "$dir"' EXIT INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
# window NAME WORD...: types a command in a window and shows its reply.
window() {
    name=$1
    shift
    printf '%s> %s\n' "$name" "$*"
    reply=$("$cli" -p $port --no-raw "$@")
    printf '%s\n' "$reply"
}
waiters() { "$cli" -p $port INFO lock | tr -d '\r' | sed -n 's/^lock_waiters://p'; }
wait_until_parked() { until [ "$(waiters)" = "$1" ]; do sleep 0.02; done; }

say 'Window 1: alice takes the lock. The number is her fencing token.'
window '1' LOCK.ACQUIRE invoices:42 alice PX 30000

say 'Window 2: bob asks for it and is parked in the server; his window falls silent.'
printf '2> LOCK.ACQUIRE invoices:42 bob PX 10000 BLOCK 0\n'
"$cli" -p $port --no-raw LOCK.ACQUIRE invoices:42 bob PX 10000 BLOCK 0 >"$dir/bob" &
bob=$!
wait_until_parked 1

say 'Window 1: who holds it, who waits?'
window '1' LOCK.INFO invoices:42 WAITERS

say 'Window 1: alice releases. In the same event the lock is handed to bob.'
window '1' LOCK.RELEASE invoices:42 alice
wait $bob
printf '2> ... %s\n' "$(cat "$dir/bob")"

say 'Window 2: it is an ordinary hash, as Redisson knows it.'
window '2' HGETALL invoices:42
window '2' LOCK.RELEASE invoices:42 bob
window '2' EXISTS invoices:42
