#!/bin/sh
# Demonstration: replaces the module in a server with held locks and parked waiters.
set -eu
cd "$(dirname "$0")/.."
. scripts/stage.sh

window 'operator' CONFIG SET lock.default-lease 20000
say 'alice holds a lock; bob waits for it.'
window 'alice' LOCK.ACQUIRE invoices:42 alice PX 60000
"$cli" -p $port --no-raw LOCK.ACQUIRE invoices:42 bob PX 60000 BLOCK 0 >"$dir/bob" &
bob=$!
wait_until_parked 1

say 'The new build.'
cp "$module" "$dir/libredis_lock.new.so"
scripts/upgrade.sh "$dir/libredis_lock.new.so" -p $port

wait $bob || true
say 'bob got -UNBLOCKED, and asks again.'
printf 'bob> ... %s\n' "$(cat "$dir/bob")"
"$cli" -p $port --no-raw LOCK.ACQUIRE invoices:42 bob PX 60000 BLOCK 0 >"$dir/bob" &
bob=$!
wait_until_parked 1

say 'alice holds her lock as before, under the same token; the setting is as it was.'
window 'alice' LOCK.ACQUIRE invoices:42 alice ONCE
window 'operator' CONFIG GET lock.default-lease
window 'alice' LOCK.RELEASE invoices:42 alice

say 'bob has the next token.'
wait $bob
printf 'bob> ... %s\n' "$(cat "$dir/bob")"
