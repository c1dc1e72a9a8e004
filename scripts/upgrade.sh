#!/bin/sh
# upgrade.sh MODULE [redis-cli's options]: puts another build of the module into a running server.
#
# Locks stay as they are: they are keys of the server. Waiters are sent away with -UNBLOCKED and ask
# again. Tokens go on above the old ones. What was set by CONFIG SET or in redis.conf is carried over.
# While no module is loaded, LOCK.* are unknown commands: clients are to repeat them.
#
# On Redis 8, and with io-threads, every client's connection is closed with the old module; clients connect again.
#
# Never do this under CLIENT PAUSE: a postponed command of the module would be carried out by code
# that is gone (Redis 7.2 and newer, Valkey).
set -eu

[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0"; exit 2; }
new=$1
shift
# The server has a working directory of its own.
case $new in /*) ;; *) new=$PWD/$new ;; esac
cli=$(command -v redis-cli || command -v valkey-cli)
# The server's words; an error of the server is a failure.
ask() { words=$("$cli" -e "$@") && status=0 || status=1; printf '%s\n' "$words" | tr -d '\r'; return $status; }
field() { sed -n "s/^$1://p"; }

# The options of the call, kept where functions have arguments of their own.
options=$(for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done)
redis() { eval "ask $options \"\$@\""; }

old=$(redis MODULE LIST | grep -A 6 '^lock$' | grep -A 1 '^path$' | tail -n 1)
[ -x "$new" ] || { echo "$new is no module: it must be executable" >&2; exit 1; }
[ -n "$old" ] || { echo 'the module is not loaded: MODULE LOAD it' >&2; exit 1; }

# Every setting but lock.drain, as words of MODULE LOADEX.
settings=$(redis CONFIG GET 'lock.*' | paste -d' ' - - | grep -v '^lock\.drain ' | sed 's/^/CONFIG /')

give_up() {
    redis CONFIG SET lock.drain no >/dev/null || true
    echo "$1" >&2
    exit 1
}

echo 'drain: waiters are sent away, nobody parks'
redis CONFIG SET lock.drain yes >/dev/null
tries=0
until [ "$(redis INFO lock | field lock_waiters)" = 0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || give_up 'somebody is still parked'
    sleep 0.05
done

# Redis 8 goes on using the command that a connection sent last, though the module is gone, and ends; Valkey's
# io-threads look commands up ahead. A busy client sends another at any moment, so all connections are closed
# by the very transaction that unloads.
case $(redis INFO server | field redis_version),$(redis CONFIG GET io-threads | tail -n 1) in
[67].*,1) closing=no ;;
*) closing=yes ;;
esac
unload() {
    if [ $closing = no ]; then
        redis MODULE UNLOAD lock
    else
        printf '%s\n' MULTI 'CLIENT KILL TYPE normal' 'CLIENT KILL TYPE pubsub' 'MODULE UNLOAD lock' EXEC | redis | tail -n 1
    fi 2>&1
}

echo "unload $old"
tries=0
until answer=$(unload) && [ "$answer" = OK ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || give_up "not unloaded: $answer"
    sleep 0.05
done

echo "load $new"
# shellcheck disable=SC2086
if ! refusal=$(redis MODULE LOADEX "$new" $settings 2>&1); then
    echo "not loaded: $refusal; back to $old" >&2
    # shellcheck disable=SC2086
    refusal=$(redis MODULE LOADEX "$old" $settings 2>&1) || echo "not loaded, either: $refusal; the server has no locks now" >&2
    exit 1
fi
echo "locks: $(redis INFO lock | field lock_waiters) waiters, the holds are where they were"
