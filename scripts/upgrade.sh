#!/bin/sh
# upgrade.sh MODULE|--unload [redis-cli's options]: puts another build of the module into a running server, or none.
#
# Locks stay as they are: they are keys of the server. Waiters are answered -UNBLOCKED and ask again. New tokens are
# above the old ones. Settings of CONFIG SET and redis.conf are carried over.
#
# One transaction unloads the old module and loads the new one. ACL rules that name commands of the module are removed
# before and restored after that: with them the server would exit. Passwords, keys and channels are not changed.
# If the new build does not load, the same transaction loads the old one again. Settings that the new build lacks, an
# older one, are left out and printed.
#
# Every client's connection is closed with the old module; clients connect again.
set -eu
export LC_ALL=C

[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0"; exit 2; }
new=$1
shift
# The server has a working directory of its own.
case $new in /*) ;; --unload) new= ;; *) new=$PWD/$new ;; esac
cli=$(command -v redis-cli || command -v valkey-cli)
# Prints the server's reply; an error reply is a failure.
ask() { words=$("$cli" -e "$@") && status=0 || status=1; printf '%s\n' "$words" | tr -d '\r'; return "$status"; }
field() { sed -n "s/^$1://p"; }

# The options of the call, kept where functions have arguments of their own.
options=$(for word in "$@"; do printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done)
redis() { eval "ask $options \"\$@\""; }

refuse() { echo "$1" >&2; exit 1; }

# is_module FILE: whether it is an ELF file in full (the section headers are at its end) that exports a module's function
# and has the commands of this one. The server would end at the load of a file that is cut off.
is_module() {
    [ "$(od -An -tx1 -N4 "$1" | tr -d ' ')" = 7f454c46 ] || return 1
    grep -qF RedisModule_OnLoad "$1" && grep -qF lock.acquire "$1" || return 1
    # shellcheck disable=SC2046 # three numbers: e_shoff, e_shentsize and e_shnum
    set -- "$(wc -c <"$1")" $(od -An -tu8 -j40 -N8 "$1") $(od -An -tu2 -j58 -N4 "$1")
    [ $(($2 + $3 * $4)) -le "$1" ]
}
# is_readable FILE: whether the server's user may read it. This is known as root on the server's machine only.
is_readable() {
    process=/proc/$(redis INFO server | field process_id)
    case $(id -u):$(readlink "$process/exe") in 0:*redis-server* | 0:*valkey-server* | 0:*redict-server*) ;; *) return 0 ;; esac
    groups=$(sed -n 's/^Groups:[[:space:]]*//p' "$process/status" | sed 's/ *$//; s/ /,/g')
    # Busybox' setpriv cannot change the user.
    setpriv --help 2>&1 | grep -q -e --reuid || return 0
    setpriv --reuid "$(stat -c %u "$process")" --regid "$(stat -c %g "$process")" \
        "${groups:+--groups=}${groups:---clear-groups}" test -r "$1"
}

modules=$(redis MODULE LIST) || refuse "the server does not tell which modules it has: $modules"
old=$(printf '%s\n' "$modules" | grep -A 6 '^lock$' | grep -A 1 '^path$' | tail -n 1)
[ -n "$old" ] || refuse 'the module is not loaded: MODULE LOAD it'
# All checks come before any client is sent away.
if [ -n "$new" ]; then
    [ -x "$new" ] || refuse "$new is no module: it must be executable"
    is_module "$new" || refuse "$new is no module of locks, or not all of one"
    is_readable "$new" || refuse "the server's user may not read $new"
fi
# A package that has replaced the loaded file keeps the old build beside it.
if [ "$old" = "$new" ] && [ -x "$new.old" ]; then old=$new.old; fi

# Every setting but lock.drain, one a line.
settings=$(redis CONFIG GET 'lock.*' | paste -d' ' - - | grep -v '^lock\.drain ')
# settings_of BUILD has|lacks: those of them that it has, or lacks. A build contains the names of its settings, and does
# not load with any other.
settings_of() {
    printf '%s\n' "$settings" | while read -r name value; do
        if grep -qsF "${name#lock.}" "$1"; then has=has; else has=lacks; fi
        [ $has != "$2" ] || echo "$name $value"
    done
}

if [ "$(redis CONFIG GET enable-module-command | tail -n 1)" = no ]; then
    refuse 'the server exchanges no modules: set enable-module-command local in its configuration and restart it'
fi
commands=$(redis COMMAND LIST FILTERBY MODULE lock) || refuse "the module's commands cannot be listed: $commands"
users=$(redis ACL LIST) || refuse "the users cannot be listed: $users"

# rules without | with: for each user whose rules name a command of the module, the ACL SETUSER that sets its rules,
# without those that do or with them. A user is described as `user NAME on #hash ~key &channel -@all +command ...`, then
# come selectors, `(~key -@all +command ...)`; command rules are last in each part.
rules() {
    printf '%s\n' "$users" | awk -v which="$1" -v commands="$(printf %s "$commands" | tr '\n' ' ')" '
        BEGIN { n = split(commands, list, " "); for (i = 1; i <= n; i++) ours[list[i]] = 1 }
        function names_ours(word) {
            sub(/^\(/, "", word); sub(/\)$/, "", word)
            if (word !~ /^[-+][^@]/) return 0
            word = substr(word, 2); sub(/\|.*/, "", word)
            return tolower(word) in ours
        }
        function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
        {
            named = 0; line = ""; selector = ""; selectors = ""
            for (i = 3; i <= NF; i++) {
                word = $i
                if (selector == "" && word ~ /^\(/) selector = "("
                if (names_ours(word)) {
                    named = 1
                    if (which == "without") word = word ~ /\)$/ ? ")" : ""
                }
                if (selector != "") {
                    if (word ~ /^\(/) selector = word
                    else if (word == ")") selector = selector word
                    else if (word != "") selector = selector " " word
                    if ($i ~ /^\(?[-+].*\)$/) { selectors = selectors " " quoted(selector); selector = "" }
                } else if (word ~ /^[-+]/) line = line " " quoted(word)
            }
            if (selectors != "") line = line " clearselectors" selectors
            if (named) print "ACL SETUSER " quoted($2) line
        }'
}
taken_back=$(rules without)
set_again=$(rules with)

give_up() {
    redis CONFIG SET lock.drain no >/dev/null || true
    refuse "$1"
}
trap 'give_up interrupted' HUP INT TERM

# The module is unloaded only if no connection goes on: the server would use commands of connections that it has parsed,
# queued or remembered. That of this script is closed too, behind the transaction, so its replies are lost.
closing='CLIENT KILL TYPE normal SKIPME no
CLIENT KILL TYPE pubsub'

# The first of the two builds that loads stays; the server refuses the other as a second module of that name. The rules
# are restored in the same transaction, whatever else in it fails: users lose them only if neither build loads.
load() { printf 'MODULE LOADEX "%s" %s\n' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')" "$(settings_of "$1" has | sed 's/^/CONFIG /' | tr '\n' ' ')"; }
# In one packet: the module stays if a command of it was sent, by any client, between MODULE UNLOAD and EXEC.
exchange() {
    builds=$(for build in "$@"; do load "$build"; done)
    printf '%s\n' MULTI "$closing" "$taken_back" 'MODULE UNLOAD lock' "$builds" "$set_again" EXEC |
        sed '/^$/d' | redis --pipe 2>&1 | grep -E '^[A-Z]+ ' || true
}
# A build that was just loaded is not drained.
is_drained() { [ "$(redis CONFIG GET lock.drain | tail -n 1)" = yes ]; }
loaded() { redis MODULE LIST | grep -A 6 '^lock$' | grep -A 1 '^path$' | tail -n 1; }
sorted() { printf '%s\n' "$1" | tr ' ()' '[\n*]' | sort; }
users_are_as_before() { [ "$(sorted "$(redis ACL LIST)")" = "$(sorted "$users")" ]; }

# swap [BUILD FALLBACK]: leaves the server's error replies in $errors.
swap() {
    tries=0 errors=
    echo 'drain: waiters are sent away, no request parks'
    echo "unload${1:+, and load $1}"
    redis CONFIG SET lock.drain yes >/dev/null
    while
        looks=0
        until [ "$(redis INFO lock | field lock_waiters)" = 0 ]; do
            looks=$((looks + 1))
            [ $looks -lt 100 ] || give_up 'a request is still parked'
            sleep 0.05
        done
        errors=$(exchange "$@")
        is_drained
    do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || give_up "not unloaded, the server's log says why: $errors"
        sleep 0.05
        # Another try needs another drain.
        redis CONFIG SET lock.drain no >/dev/null
        redis CONFIG SET lock.drain yes >/dev/null
    done
}

if [ -z "$new" ]; then
    set_again=
    swap
    modules=$(redis MODULE LIST) || refuse "the server does not tell which modules it has: $modules"
    ! printf '%s\n' "$modules" | grep -qx lock || refuse 'not unloaded'
    echo 'unloaded: the holds are where they were'
    [ -z "$taken_back" ] || printf '%s\n' 'rules of users, to be restored after MODULE LOAD:' "$(rules with)"
    exit
fi
swap "$new" "$old"
case $(loaded) in
"$new") ;;
'')
    echo "neither build was loaded, the server has no locks now: $errors" >&2
    [ -z "$set_again" ] || printf '%s\n' 'rules of users, to be restored after MODULE LOAD:' "$set_again" >&2
    exit 1
    ;;
*) refuse "not loaded: ${errors:-the log of the server says why}; back to $old" ;;
esac
if ! users_are_as_before; then
    reason=$(printf '%s\n' "$set_again" | redis 2>&1 | grep -v -x OK || true)
    swap "$old" "$new"
    users_are_as_before || refuse "rules of users could not be restored: $errors"
    refuse "rules of users could not be restored with the new build: $reason; back to $old"
fi
settings_of "$new" lacks | sed 's/^/left out, this build has no such setting: /'
echo "locks: $(redis INFO lock | field lock_waiters) waiters, the holds are where they were"
