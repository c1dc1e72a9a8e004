#!/bin/sh
# each-server.sh COMMAND...: runs the command once for each server of SERVERS, with its path in LOCK_SERVER; without
# SERVERS once, with LOCK_SERVER or this machine's server. A server is a path, or a name below .servers/bin
# ("redis-8.6"), where tests/servers.sh puts what it fetches.
set -eu
dir=$(cd "$(dirname "$0")/.." && pwd)

if [ -z "${SERVERS:-}" ]; then
    LOCK_SERVER=${LOCK_SERVER:-$("$dir/scripts/server.sh")} exec "$@"
fi

path() {
    case $1 in
    */*) echo "$1" ;;
    *) echo "$dir/.servers/bin/$1" ;;
    esac
}
# Before the first run: a misspelt name must not end an hour's measurement.
for server in $SERVERS; do
    if ! [ -x "$(path "$server")" ]; then
        echo "no server $(path "$server"); tests/servers.sh .servers all fetches every release" >&2
        exit 1
    fi
done
for server in $SERVERS; do
    LOCK_SERVER=$(path "$server") "$@"
done
