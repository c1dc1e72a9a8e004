#!/bin/sh
# Prints the first installed server that is new enough for the module: Redis 7.0, Valkey 8.0.
for candidate in redis-server:7 valkey-server:8; do
    server=$(command -v "${candidate%:*}") || continue
    major=$("$server" --version | sed -n 's/.* v=\([0-9]*\).*/\1/p')
    if [ "${major:-0}" -ge "${candidate#*:}" ]; then
        echo "$server"
        exit 0
    fi
done
exit 1
