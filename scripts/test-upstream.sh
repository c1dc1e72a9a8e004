#!/bin/sh
# test-upstream.sh DIRECTORY [UNIT...]: the own tests of a server (Redis, Valkey: Tcl), or those of go-redis up to 9.7,
# on LOCK_SERVER with LOCK_MODULE. DIRECTORY is a clone or an unpacked archive of their source, and is not changed; for
# a server it should be the version of LOCK_SERVER. UNITs are those of `./runtest --list-tests`, or for go-redis a
# regular expression of names; without any, all run.
#
# The units of tests that fail with the module are run again, without it and with it. A test is reported if it fails
# both times with the module and not without, and tests/upstream/differs.tsv does not name it. A run that does not
# complete proves nothing, and fails: one that was ended, in which a server did not start, a test took too long or an
# exception ended the suite, or in which a unit is missing at the end. TOOLS is the directory of the server's other
# programs (redis-cli and so on) where PATH has none; CLIENTS is the number of units at a time (2), PORT the first port
# of their servers (21111).
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
    sed -u "s/$escape\[[0-9;]*m//g"
}

# A program of the server by its name, below src; the server acts as the checks of files by its name.
program() {
    found=$(command -v "$1-$2" || command -v "redis-$2" || :)
    [ -z "$found" ] || ln -sf "$found" "$3/$1-$2"
}

# Both print the failed tests to $work/NAME.failed, a line for each: unit, tab, test; and why the run did not complete to
# $work/NAME.incomplete.
tcl() {
    name=$1
    shift
    suite="tests/test_helper.tcl --clients ${CLIENTS:-2} --timeout 1800 --baseport ${PORT:-21111}"
    # shellcheck disable=SC2086 # options, one a word
    (cd "$work" && { tclsh $suite "$@" 2>&1 || echo "[exit]: $?"; }) | plain | tee "$work/$name.log" |
        sed -u -n 's|^\(\[[0-9]*/[0-9]* done\]: .*\)|  \1|p'
    sed -n 's|^\[err\]: \(.*\) in \(tests/\)\{0,1\}\(.*\)\.tcl$|\3\t\1|p' "$work/$name.log" | sort -u >"$work/$name.failed"
    grep -ac '^\[ok\]: ' "$work/$name.log" >"$work/$name.passed" || :
    # Any other error is not a test's.
    {
        grep -aE '^\[(err|exception|TIMEOUT)\]' "$work/$name.log" | grep -avE '^\[err\]: .* in .*\.tcl$' || :
        # After failed tests, and only then, the suite ends with an error.
        [ -s "$work/$name.failed" ] || grep -a '^\[exit\]' "$work/$name.log" || :
        grep -aq 'The End$' "$work/$name.log" || echo 'the suite did not come to its end'
        last=$(sed -n 's|^\[\([0-9]*/[0-9]*\) done\]: .*|\1|p' "$work/$name.log" | tail -n 1)
        [ "${last%/*}" = "${last#*/}" ] || echo "the last unit is missing: $last"
        for unit in "$@"; do
            case $unit in unit/* | integration/*) ;; *) continue ;; esac
            grep -aqE "^\[[0-9]+/[0-9]+ done\]: $unit \(" "$work/$name.log" || echo "$unit did not complete"
        done
    } >"$work/$name.incomplete"
}

go_redis() {
    name=$1
    shift
    # Some tests flush whatever server they find at the usual port: in the copy they look where none is.
    (cd "$work" && { go test -v -run TestGinkgoSuite -timeout 60m . -ginkgo.no-color "$@" 2>&1 || echo "[exit]: $?"; }) |
        tee "$work/$name.log" | sed -u -n 's|^\(Ran [0-9].*\)|  \1|p'
    sed -n 's|^ *\[F[Aa][Ii][Ll]*\] \(.*\)$|go-redis\t\1|p' "$work/$name.log" | sort -u >"$work/$name.failed"
    sed -n 's/.*-- *\([0-9]*\) Passed.*/\1/p' "$work/$name.log" >"$work/$name.passed"
    {
        grep -aq '^Ran [0-9]* of [0-9]* Specs' "$work/$name.log" || echo 'the suite did not come to its end'
        grep -aE '^(panic: |\*\*\* Test killed|.*\[TIMEDOUT\])' "$work/$name.log" || :
        [ -s "$work/$name.failed" ] || grep -a '^\[exit\]' "$work/$name.log" || :
    } >"$work/$name.incomplete"
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
    # The units of the tests that failed.
    failed_units() { again=$(cut -f1 "$work/with.failed" | sort -u | sed 's/^/--single /'); }
    # shellcheck disable=SC2086 # units are options, one a word
    {
        with() { tcl with ${units:-} --config loadmodule "$LOCK_MODULE"; }
        without() { failed_units && tcl without $again; }
        again() { failed_units && tcl again $again --config loadmodule "$LOCK_MODULE"; }
    }
elif grep -qs redisServerBin "$source/main_test.go"; then
    cp -R "$source/." "$work"
    find "$work" -name '*.go' -exec sed -i "s/\\b6379\\b/1/g" {} +
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
    if [ -s "$work/$1.incomplete" ] || ! grep -q '^[1-9]' "$work/$1.passed"; then
        tail -n 20 "$work/$1.log"
        echo "NOT COMPLETE: the run \"$1\":" "$(cat "$work/$1.incomplete")"
        exit 1
    fi
}

run with
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
