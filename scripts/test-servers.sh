#!/bin/sh
# test-servers.sh DIR quick|all: the server tests on each server of DIR/bin, one after the other.
# Prints the version of each server before its tests, so that a log says what was tested.
set -eu
cd "$(dirname "$0")/.."
dir=$1 which=$2
LOCK_MODULE=$PWD/target/release/libredis_lock.so
LOCK_OLD_SERVERS=$(ls -d "$PWD/$dir"/bin/redis-6.* 2>/dev/null | paste -sd: -)
export LOCK_MODULE LOCK_OLD_SERVERS

failed=
for server in $(cat "$dir/$which"); do
    printf '\n== %s: %s\n' "$(basename "$server")" "$("$server" --version)"
    LOCK_SERVER=$server cargo test --release --locked --test server -- --test-threads "${THREADS:-4}" ||
        failed="$failed $(basename "$server")"
done
if [ -n "$failed" ]; then
    echo "failed on:$failed"
    exit 1
fi
