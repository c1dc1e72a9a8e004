#!/bin/bash
# What a lock adds to a command: `redis-lock run` beside flock(1) and beside nothing, around true(1), taking
# turns. Starts a server of its own on loopback, without persistence. Prints medians in milliseconds.
# ROUNDS=500 REDIS_LOCK=path MODULE=path PORT=17790
set -eu
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-500}
program=${REDIS_LOCK:-target/release/redis-lock}
module=${MODULE:-$PWD/target/release/libredis_lock.so}
port=${PORT:-17790}

dir=$(mktemp -d)
server=$(scripts/server.sh)
"$server" --port "$port" --bind 127.0.0.1 --save '' --dir "$dir" --loadmodule "$module" >"$dir/log" &
pid=$!
trap 'kill "$pid"; wait "$pid" || true; rm -rf "$dir"' EXIT
export REDIS_LOCK_URL=redis://127.0.0.1:$port
for _ in $(seq 100); do
    "$program" run k true 2>/dev/null && break
    sleep 0.1
done

# Runs a command and notes its microseconds under a name.
timed() {
    name=$1
    shift
    before=${EPOCHREALTIME/./}
    "$@"
    echo $((${EPOCHREALTIME/./} - before)) >>"$dir/$name"
}

for _ in $(seq "$rounds"); do
    timed nothing env true
    timed flock flock "$dir/lock" true
    timed run "$program" run k true
    timed die-with-parent "$program" run --die-with-parent k true
    timed start "$program" --version >/dev/null
done

echo "$rounds rounds each, $("$server" --version | cut -d' ' -f1-3), $(flock --version), ms (median; 90 %):"
for name in nothing flock run die-with-parent start; do
    sort -n "$dir/$name" | awk -v name="$name" -v n="$rounds" '
        NR == int((n + 1) / 2) { median = $1 }
        NR == int(n * 0.9) { most = $1 }
        END { printf "%-16s %6.2f %6.2f\n", name, median / 1000, most / 1000 }'
done
