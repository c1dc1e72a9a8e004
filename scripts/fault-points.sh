#!/bin/sh
# fault-points.sh [NAME...]: do the tests of the server notice the fault points of tests/fault-points.txt? Each is a
# small bug in the module with LOCK.FAULT, which LOCK_FAULT_POINT turns on. Its test must fail then; without a fault it
# must pass. The Makefile sets TESTED (cargo's options), LOCK_FAULT_MODULE and LOCK_SERVER.
set -eu
cd "$(dirname "$0")/.."
dir=$PWD/target/fault-points
rm -rf "$dir"
mkdir -p "$dir/logs" "$dir/tmp"
# Directories of servers that are killed are left behind.
export LOCK_MODULE="$LOCK_FAULT_MODULE" TMPDIR="$dir/tmp" dir
program=$(cargo test $TESTED --test server --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
export program="$PWD/${program#"$PWD/"}"

grep '^[a-z]' tests/fault-points.txt | cut -d' ' -f1,2 >"$dir/points"
for name; do grep "^$name " "$dir/points" || { echo "no fault point $name" >&2; exit 2; }; done >"$dir/named"
[ $# -eq 0 ] || mv "$dir/named" "$dir/points"

names=$(cut -d' ' -f2 "$dir/points" | sort -u)
number=$(echo "$names" | wc -l)
"$program" --test-threads "${THREADS:-4}" --exact $names >"$dir/log" 2>&1 && grep -q "^running $number test" "$dir/log" || {
    cat "$dir/log"
    echo 'fault-points: without a fault these tests must exist and pass'
    exit 2
}

# Nearly all of a test's time is waiting. `timeout` ends it with all its servers, by their process group.
xargs -P "${THREADS:-4}" -n 2 sh -c '
    status=0
    LOCK_FAULT_POINT=$0 timeout -k 10 120 "$program" --exact "$1" >"$dir/logs/$0" 2>&1 || status=$?
    case $status in
    101 | 124 | 137) echo "$0: caught by $1" ;;
    *) echo "$0: NOT CAUGHT by $1 (status $status)" ;;
    esac' <"$dir/points" | tee "$dir/verdicts"
rm -rf "$dir/tmp"
! grep 'NOT CAUGHT' "$dir/verdicts" >/dev/null
