#!/bin/sh
# The two windows of the README side by side, played on a server of their own. At a terminal each step waits for Enter.
set -eu
cd "$(dirname "$0")/.."
. scripts/stage.sh

# The width of the left window: that of the README, or half of a terminal that has less room.
columns=$( (stty size </dev/tty | cut -d' ' -f 2) 2>/dev/null) || :
left=47
if [ "${columns:-0}" -gt 0 ] && [ "$columns" -lt 96 ]; then left=$(((columns - 3) / 2)); fi

# pane 1|2: shows its input in a window.
pane() {
    fold -s -w $((left - 1)) | while IFS= read -r line; do
        if [ "$1" = 1 ]; then printf "%-${left}s|\n" "$line"; else printf "%-${left}s| %s\n" '' "$line"; fi
    done
}
window() {
    pane=$1
    shift
    { echo "$pane> $*"; reply "$@"; } | pane "$pane"
}

printf "\n%s%-${left}s| %s%s\n" "$bold" 'Window 1: alice' 'Window 2: bob' "$plain"

say 'alice takes the lock. The reply is her fencing token.'
window 1 LOCK.ACQUIRE invoices:42 alice EX 600

say 'bob asks for it. The server parks his request, and his window falls silent.'
echo '2> LOCK.ACQUIRE invoices:42 bob EX 600 BLOCK 0' | pane 2
reply LOCK.ACQUIRE invoices:42 bob EX 600 BLOCK 0 >"$dir/bob" &
bob=$!
wait_until_parked 1

say 'Who holds it, who waits? (The names alone; the reply has more.)'
{
    echo '1> LOCK.INFO invoices:42 WAITERS'
    "$cli" -p $port LOCK.INFO invoices:42 WAITERS | tr -d '\r' |
        awk '$0 == "queue" { waits = 1 } last == "owner" { print (waits ? "waits: " : "holds: ") $0 } { last = $0 }'
} | pane 1

say 'alice releases it. The same event hands it to bob, with a higher token.'
window 1 LOCK.RELEASE invoices:42 alice
wait $bob
pane 2 <"$dir/bob"

say 'The lock is an ordinary hash, as Redisson knows it.'
window 2 HGETALL invoices:42

say 'bob releases it. Nothing is left.'
window 2 LOCK.RELEASE invoices:42 bob
window 2 EXISTS invoices:42
