# shellcheck shell=sh
# Common part of the demonstrations, which source it: a server with the module, and the steps.
# LOCK_SERVER and LOCK_MODULE replace the usual ones. Defines $port, $dir, $module, say, reply, window, wait_until_parked.
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
        --enable-module-command local \
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
# window NAME WORD...: types a command in a window and shows its reply.
window() {
    name=$1
    shift
    printf '%s> %s\n' "$name" "$*"
    reply "$@"
}
waiters() { "$cli" -p $port INFO lock | tr -d '\r' | sed -n 's/^lock_waiters://p'; }
wait_until_parked() { until [ "$(waiters)" = "$1" ]; do sleep 0.02; done; }

