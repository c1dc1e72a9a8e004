#!/bin/sh
# test-upstream.sh DIRECTORY [UNIT...]: the own tests of a server (Redis, Valkey: Tcl), or those of go-redis up to 9.7,
# on LOCK_SERVER with LOCK_MODULE. DIRECTORY is a clone or an unpacked archive of their source, and is not changed; for
# a server it should be the version of LOCK_SERVER. UNITs are those of `./runtest --list-tests`, or for go-redis a
# regular expression of names; without any, all run.
#
# The units of tests that fail with the module are run again, without it and with it. A test is reported if it fails
# both times with the module and not without, and tests/upstream/differs.tsv does not name it. TOOLS is the directory of
# the server's other programs (redis-cli and so on) where PATH has none; CLIENTS is the number of units at a time (2),
# PORT the first port of their servers (21111).
set -eu
cd "$(dirname "$0")/.."
differs=$PWD/tests/upstream/differs.tsv
[ -n "${1:-}" ] && [ -d "$1" ] || {
    echo 'usage: make test-upstream SOURCE=DIRECTORY [UNITS=...]: a source of Redis, Valkey or go-redis' >&2
    exit 2
}
source=$(cd "$1" && pwd)
shift
server=$(command -v "$LOCK_SERVER")
work=$PWD/target/upstream/$(basename "$source")
rm -rf "$work"
mkdir -p "$work"
export PATH="$PATH${TOOLS:+:$TOOLS}"

# Without colours.
plain() {
    escape=$(printf '\033')
    sed "s/$escape\[[0-9;]*m//g"
}

# A program of the server by its name, below src; the server acts as the checks of files by its name.
program() {
    found=$(command -v "$1-$2" || command -v "redis-$2" || :)
    [ -z "$found" ] || ln -sf "$found" "$3/$1-$2"
}

# Both print the failed tests to $work/NAME.failed, a line for each: unit, tab, test.
tcl() {
    name=$1
    shift
    suite="tests/test_helper.tcl --clients ${CLIENTS:-2} --timeout 1800 --baseport ${PORT:-21111}"
    # shellcheck disable=SC2086 # options, one a word
    (cd "$work" && tclsh $suite "$@" 2>&1 || :) | plain >"$work/$name.log"
    # A test that failed, or an exception, which ends its unit.
    sed -n -e 's|^\[err\]: \(.*\) in \(tests/\)\{0,1\}\(.*\)\.tcl$|\3\t\1|p' \
        -e 's|^\[exception\]: \(.*\)$|\t\1|p' "$work/$name.log" | sort -u >"$work/$name.failed"
    grep -c '^\[ok\]: ' "$work/$name.log" >"$work/$name.passed" || :
}

go_redis() {
    name=$1
    shift
    (cd "$work" && go test -run TestGinkgoSuite -timeout 60m . -ginkgo.no-color "$@" 2>&1 || :) >"$work/$name.log"
    sed -n 's|^ *\[F[Aa][Ii][Ll]*\] \(.*\)$|go-redis\t\1|p' "$work/$name.log" | sort -u >"$work/$name.failed"
    sed -n 's/.*-- *\([0-9]*\) Passed.*/\1/p' "$work/$name.log" >"$work/$name.passed"
}

if [ -f "$source/tests/test_helper.tcl" ]; then
    kind=redis
    ! grep -q src/valkey-server "$source/tests/support/server.tcl" || kind=valkey
    mkdir "$work/src"
    cp -R "$source/tests" "$work"
    [ ! -d "$source/utils" ] || cp -R "$source/utils" "$work"
    ln -s "$server" "$work/src/$kind-server"
    for tool in cli benchmark check-aof check-rdb; do program "$kind" "$tool" "$work/src"; done
    for unit in "$@"; do units="${units:-} --single $unit"; done
    # The units of the tests that failed: all of the run after an exception, which names none.
    failed_units() {
        again=${units:-}
        if ! grep -q '^	' "$work/with.failed"; then
            again=$(cut -f1 "$work/with.failed" | sort -u | sed 's/^/--single /')
        fi
    }
    # shellcheck disable=SC2086 # units are options, one a word
    {
        with() { tcl with ${units:-} --config loadmodule "$LOCK_MODULE"; }
        without() { failed_units && tcl without $again; }
        again() { failed_units && tcl again $again --config loadmodule "$LOCK_MODULE"; }
    }
elif grep -qs redisServerBin "$source/main_test.go"; then
    cp -R "$source/." "$work"
    redis=$work/testdata/redis
    mkdir -p "$redis/src"
    ln -s "$server" "$redis/src/redis-server"
    with() { configured with "loadmodule $LOCK_MODULE"; }
    without() { configured without ''; }
    again() { configured again "loadmodule $LOCK_MODULE"; }
    configured() {
        printf 'bind 127.0.0.1\n%s\n' "$2" >"$redis/redis.conf"
        go_redis "$1" ${units:+-ginkgo.focus "$units"}
    }
    units=$*
    echo 'bind 127.0.0.1' >"$redis/sentinel.conf"
else
    echo "$source is no source of Redis or Valkey, or of go-redis up to 9.7" >&2
    exit 2
fi

# run NAME: one run, into $work/NAME.log.
run() {
    echo "$1: $work/$1.log"
    "$1"
    echo "$1: $(cat "$work/$1.passed") passed, $(wc -l <"$work/$1.failed") failed"
}

run with
if ! grep -q '^[1-9]' "$work/with.passed"; then
    tail -20 "$work/with.log"
    exit 1
fi
[ -s "$work/with.failed" ] || exit 0
run without
comm -23 "$work/with.failed" "$work/without.failed" >"$work/differ"
[ -s "$work/differ" ] || exit 0
# A test that needs a quiet machine fails by chance.
run again
comm -12 "$work/differ" "$work/again.failed" >"$work/twice"
status=0
while IFS='	' read -r unit test; do
    if reason=$(awk -F'\t' -v test="$test" '$1 == test { print $2; found = 1 } END { exit !found }' "$differs"); then
        echo "differs as known: $test: $reason"
    else
        echo "FAILED with the module only: $unit: $test"
        status=1
    fi
done <"$work/twice"
exit "$status"
