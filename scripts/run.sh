#!/bin/sh
# run.sh: a server with the module loaded, in the foreground, on loopback. PORT chooses the port (6379).
set -eu
cd "$(dirname "$0")/.."
port=${PORT:-6379}
case $port in
'' | *[!0-9]*) echo "run: PORT=$port is not a number" >&2; exit 2 ;;
esac
server=$(scripts/server.sh) || { echo 'run: no Redis 7.0 or Valkey 8.0 (or newer) here; make setup' >&2; exit 1; }
module=$PWD/target/release/libredis_lock.so

# The command that a reader can paste: a client of PATH, else the one that setup.sh has unpacked.
cli=
for candidate in redis-cli valkey-cli; do
    path=$(command -v $candidate) || continue
    case $path in
    "$PWD"/*) cli=target/server/$candidate ;;
    *) cli=$candidate ;;
    esac
    break
done
[ -n "$cli" ] || cli=target/server/redis-cli

. scripts/ports.sh

# Names a free port, and exits.
refuse() {
    free=$((port + 1))
    while [ $free -lt $((port + 100)) ] && taken $free; do free=$((free + 1)); done
    there=$($cli -h 127.0.0.1 -p "$port" INFO server 2>/dev/null </dev/null | tr -d '\r' |
        sed -n 's/^redis_version:/ by a server (version /p; s/^process_id:/, process /p' | paste -sd '\0' -)
    echo "run: port $port on 127.0.0.1 is in use${there:+$there)}. Try: make run PORT=$free" >&2
    exit 1
}
if [ "$port" -gt 65535 ] || [ "$port" -eq 0 ]; then
    echo "run: PORT=$port is no port" >&2
    exit 2
fi
if taken "$port"; then refuse; fi

# A helper in the background prints the address once this process answers. It ends with the server.
(
    until $cli -h 127.0.0.1 -p "$port" INFO server 2>/dev/null </dev/null | tr -d '\r' | grep -q "^process_id:$$\$"; do
        kill -0 $$ 2>/dev/null || exit 0
        sleep 0.1
    done
    printf '\nlock server on 127.0.0.1:%s; try in another window: %s -p %s LOCK.HELP\nCtrl-C ends it.\n\n' "$port" "$cli" "$port"
) &

exec "$server" --port "$port" --bind 127.0.0.1 --save "" --loadmodule "$module"
