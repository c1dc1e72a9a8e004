#!/bin/sh
# The two windows of the README, played on a server of their own.
set -eu
cd "$(dirname "$0")/.."
. scripts/stage.sh

say 'Window 1: alice takes the lock. The number is her fencing token.'
window '1' LOCK.ACQUIRE invoices:42 alice EX 600

say 'Window 2: bob asks for it and is parked in the server; his window falls silent.'
printf '2> LOCK.ACQUIRE invoices:42 bob EX 600 BLOCK 0\n'
"$cli" -p $port --no-raw LOCK.ACQUIRE invoices:42 bob EX 600 BLOCK 0 >"$dir/bob" &
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
