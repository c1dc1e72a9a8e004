#!/bin/sh
# run.sh LOCK-FAULTS DIRECTORY [OPTION...]: plays the scenarios of lock-faults (OPTION: as of `lock-faults run`), writes
# their histories and the forged ones of its tests below DIRECTORY, and has Porcupine check all of them. LOCK_SERVER,
# LOCK_MODULE: as for every test. FORGED: the command that runs the tests of the checker.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
faults=$1 dir=$2
shift 2
"$here/../clients/need" 'go version | grep -qE "go1\.(2[6-9]|[3-9][0-9])"' golang-go
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
rm -rf "$dir/runs" "$dir/forged"
mkdir "$dir/forged"
FORGED_HISTORIES="$dir/forged" sh -c "$FORGED" >"$dir/forged.log" 2>&1 || { cat "$dir/forged.log"; exit 1; }
"$faults" run --histories "$dir/runs" "$@"
cd "$here"
export GOTOOLCHAIN=local
go vet .
go test -count=1 .
go build -o "$dir/linearizability" .
"$dir/linearizability" -limit 10s "$dir/runs"
"$dir/linearizability" -forged "$dir/forged"
