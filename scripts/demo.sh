#!/bin/sh
# The two windows of the README side by side, played on a server of their own. At a terminal each step waits for Enter.
# LOCK_SERVER and LOCK_MODULE replace the usual ones.
set -eu
cd "$(dirname "$0")/.."
server=${LOCK_SERVER:-$(scripts/server.sh)}
module=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
PATH=$PATH:$PWD/target/server
cli=$(command -v redis-cli || command -v valkey-cli)
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || { kill $pid 2>/dev/null; wait $pid 2>/dev/null || true; }; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# The first port on which no server answers and this server starts.
port=7600
until [ -n "$pid" ]; do
    port=$((port + 1))
    "$server" --port $port --bind 127.0.0.1 --save "" --dir "$dir" --logfile "$dir/log" \
        --loadmodule "$module" &
    pid=$!
    tries=0
    until grep -q 'Ready to accept' "$dir/log" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 200 ]; then kill $pid 2>/dev/null || true; fi
        if ! kill -0 $pid 2>/dev/null; then pid=; rm -f "$dir/log"; break; fi
        sleep 0.05
    done
    [ $port -lt 7700 ] || { echo 'no free port' >&2; exit 1; }
done

# Bold at a terminal only (https://no-color.org).
bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
# say TEXT: what comes next. At a terminal it waits for Enter, or two seconds where nothing can be typed.
say() {
    printf '\n%s%s%s\n' "$bold" "$1" "$plain"
    [ -t 1 ] || return 0
    if [ -t 0 ]; then
        printf '(Enter)'
        read -r _ || exit 0
        # Without a trace, where the terminal can.
        [ -z "$bold" ] || printf '\033[1A\033[2K'
    else
        sleep 2
    fi
}
# reply WORD...: the reply to a command, as a window of the client shows it.
reply() { "$cli" -p $port --no-raw "$@"; }
waiters() { "$cli" -p $port INFO lock | tr -d '\r' | sed -n 's/^lock_waiters://p'; }
wait_until_parked() { until [ "$(waiters)" = "$1" ]; do sleep 0.02; done; }

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
# window 1|2 WORD...: types a command in a window and shows its reply.
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
