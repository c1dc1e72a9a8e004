#!/bin/sh
# server.sh [--quiet]: prints the first server that is new enough for the module: Redis 7.0, Valkey 8.0.
#
# The order: servers in PATH; the program in Debian's redis-tools (valkey-tools), whose file redis-check-rdb is also the
# server and acts by the name under which it is called, through a link in target/server; a server that setup.sh has
# unpacked there. No service is installed.
set -eu
cd "$(dirname "$0")/.."
own=$PWD/target/server
PATH=$PATH:$own

# new_enough SERVER MAJOR: the server starts and prints at least this major version.
new_enough() {
    major=$("$1" --version 2>/dev/null </dev/null | sed -n 's/.* server v=\([0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge "$2" ]
}

# found SERVER: prints the answer and exits.
found() {
    [ "${1:-}" = --quiet ] || echo "$2"
    exit 0
}

# all NAME: each file of this name in PATH, best first. The first may be too old, or a script that fails.
all() {
    echo "$PATH" | tr : '\n' | while read -r directory; do
        if [ -f "$directory/$1" ] && [ -x "$directory/$1" ]; then echo "$directory/$1"; fi
    done
}

for candidate in redis:7 valkey:8; do
    name=${candidate%:*}
    server=$(all "$name-server" | while read -r server; do
        if new_enough "$server" "${candidate#*:}"; then
            echo "$server"
            break
        fi
    done)
    [ -z "$server" ] || found "${1:-}" "$server"
done
for candidate in redis:7 valkey:8; do
    name=${candidate%:*}
    program=$(command -v "$name-check-rdb") || continue
    mkdir -p "$own"
    ln -sf "$program" "$own/$name-server"
    if new_enough "$own/$name-server" "${candidate#*:}"; then found "${1:-}" "$own/$name-server"; fi
    rm -f "$own/$name-server"
done
exit 1
