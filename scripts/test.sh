#!/bin/sh
# test.sh: the parts of `make test`, one after the other, up to the first that fails; at the end the closing lines of
# all test programs. The Makefile sets the environment: TESTED (cargo's options), CASES, LOCK_MODULE,
# LOCK_FAULT_MODULE, LOCK_SERVER.
#
# The module is that of the quick profile, on one server. `make test-servers` and `make test-all` run the release
# module, and the tests that are left out here because they take long: crowds, memory, a thousand sequences.
# `make test-histories` runs those that need Go.
set -eu
cd "$(dirname "$0")/.."
log=$(mktemp -d "$PWD/target/test.XXXXXX")
trap 'rm -rf "$log"' EXIT
trap 'exit 130' INT TERM
begin=$(date +%s)

# part NAME EXPECTED COMMAND...: one plain line, then the command; its closing lines are kept.
part() {
    name=$1
    printf '\n== make test: %s (%s)\n' "$name" "$2"
    shift 2
    start=$(date +%s)
    { "$@" 2>&1 || : >"$log/failed"; } | tee "$log/out"
    printf '%s: %s s\n' "$name" "$(($(date +%s) - start))" >>"$log/summary"
    # Each with its test program; not those of programs without tests.
    awk '/^ +(Running|Doc-tests) / { sub(/^ +(Running )?/, ""); sub(/ \(target.*/, ""); program = $0 }
        /^test result: / && !/ 0 passed; 0 failed/ { print "  " $0 " (" program ")" }' "$log/out" >>"$log/summary"
    if [ -e "$log/failed" ]; then end 1; fi
}

end() {
    printf '\n== make test: the closing lines of the tests\n'
    cat "$log/summary"
    if [ "$1" -eq 0 ]; then verdict=passed; else verdict="FAILED in: $name"; fi
    printf 'make test: %s, %s s\n' "$verdict" "$(($(date +%s) - begin))"
    exit "$1"
}

# shellcheck disable=SC2086 # TESTED is options, one a word
tests() { cargo test $TESTED --no-fail-fast "$@"; }

# The limit of open files: many commands at once, each with its pipes.
ulimit -S -n 4096 2>/dev/null || :
export PROPTEST_CASES="$CASES" LOCK_CASES="$CASES" LOCK_CROWD=50 LOCK_SEQUENCES=250

part 'compiling' 'two to four minutes the first time, up to half a minute later' "$MAKE" --no-print-directory test-build redisson-texts
part 'the core and other units' 'half a minute' tests --lib --bins --exclude redis_lock_fault_module
part 'the server tests' 'one and a half minutes' \
    tests --test server -- --test-threads "${THREADS:-12}" --skip memory:: --skip scale::
part "Redisson's scripts, natively and in Lua" 'half a minute' \
    tests --test redisson_scripts -- --skip a_fault_in_a_script_is_found
part 'the client and the command line, on real servers' 'four minutes' \
    tests --test blocking --test family --test few_files --test locks --test several --test tracing --test cli \
    -- --test-threads "${THREADS:-12}" --skip samples_crate::
part 'the harness and the judges of the fault tests' 'a minute' \
    tests --test barrier --test process --test sabotage -- --skip porcupine::
part 'the examples of the documentation' 'half a minute' tests --doc
end 0
