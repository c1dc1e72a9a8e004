#!/bin/sh
# test.sh: what `make test` compiles and runs; at the end the closing lines of all test programs. The Makefile sets the
# environment: TESTED (cargo's options), CASES, LOCK_MODULE, LOCK_FAULT_MODULE, LOCK_SERVER.
# test.sh LANE: the parts of one lane, one after the other, up to the first that fails. Lanes run at the same time,
# because the tests of the clients mostly wait: for ends of leases, for renewals, for fail-overs.
#
# The module is that of the quick profile, on one server. `make test-servers` and `make test-all` run the release
# module, and the tests that are left out here because they take long: crowds, memory, a thousand sequences.
# `make test-histories` runs those that need Go.
set -eu
cd "$(dirname "$0")/.."
log=${TEST_LOG:-$(mktemp -d "$PWD/target/test.XXXXXX")}
lane=${1:-}

# part NAME COMMAND...: one plain line, then the command; its closing lines are kept.
part() {
    name=$1
    shift
    printf '\n== make test: %s\n' "$name"
    start=$(date +%s)
    { "$@" 2>&1 || : >"$log/failed.$lane"; } | tee "$log/out.$lane"
    printf '%s: %s s\n' "$name" "$(($(date +%s) - start))" >>"$log/summary.$lane"
    # Each with its test program; not those of programs without tests.
    awk '/^ +(Running|Doc-tests) / { sub(/^ +(Running )?/, ""); sub(/ \(target.*/, ""); program = $0 }
        /^test result: / && !/ 0 passed; 0 failed/ { print "  " $0 " (" program ")" }' \
        "$log/out.$lane" >>"$log/summary.$lane"
    if [ -e "$log/failed.$lane" ]; then
        printf 'FAILED in: %s\n' "$name" | tee -a "$log/summary.$lane"
        exit 1
    fi
}

# shellcheck disable=SC2086 # TESTED is options, one a word
tests() { cargo test $TESTED --no-fail-fast "$@"; }

case $lane in
module)
    part 'the core and other units' tests --lib --bins --exclude redis_lock_fault_module
    part 'the server tests' tests --test server -- --test-threads "${THREADS:-12}" --skip memory:: --skip scale::
    part 'the examples of the documentation' tests --doc
    exit
    ;;
client)
    part 'the client, on real servers' \
        tests --test locks --test blocking --test family -- --test-threads "${THREADS:-12}"
    exit
    ;;
others)
    part 'several servers, the command line, the harness and the judges of the fault tests' \
        tests --test several --test tracing --test cli --test barrier --test process --test sabotage \
        -- --test-threads "${THREADS:-12}" --skip samples_crate:: --skip porcupine::
    exit
    ;;
esac

trap 'rm -rf "$log"' EXIT
trap 'exit 130' INT TERM
begin=$(date +%s)
# The limit of open files: many commands at once, each with its pipes.
ulimit -S -n 4096 2>/dev/null || :
export TEST_LOG="$log" PROPTEST_CASES="$CASES" LOCK_CROWD=50 LOCK_SEQUENCES=100
part 'compiling: up to four minutes the first time' "$MAKE" --no-print-directory test-build
# What the lanes print does not mix: that of the first is shown as it comes, that of the others afterwards.
verdict=passed
# shellcheck disable=SC2016 # sh expands them
printf '%s\n' module client others | xargs -n 1 -P 3 sh -c '
    if [ "$1" = module ]; then scripts/test.sh "$1"; else scripts/test.sh "$1" >"$TEST_LOG/all.$1"; fi' lane ||
    verdict=FAILED
cat "$log/all.client" "$log/all.others" || verdict=FAILED
printf '\n== make test: the closing lines of the tests\n'
cat "$log/summary." "$log/summary.module" "$log/summary.client" "$log/summary.others" || verdict=FAILED
printf 'make test: %s, %s s\n' "$verdict" "$(($(date +%s) - begin))"
[ "$verdict" = passed ]
