#!/bin/sh
# A server with the module loaded, in the foreground, on loopback. PORT chooses the port (6379).
set -eu
cd "$(dirname "$0")/.."
server=$(scripts/server.sh)
port=${PORT:-6379}
echo "lock server on 127.0.0.1:$port; try: redis-cli -p $port LOCK.HELP"
exec "$server" --port "$port" --bind 127.0.0.1 --save "" --loadmodule "$PWD/target/release/libredis_lock.so"
