#!/bin/sh
# valgrind.sh DIR [TEST-FILTER...]: the server tests under valgrind's memcheck, which finds reads of uninitialised
# memory, unlike AddressSanitizer, also in precompiled libraries. DIR holds the server (tests/source-server.sh DIR
# plain).
#
# Everything is about thirty times slower, so by default only the tests of parking, hand-off, vanishing clients, key
# events, panics and loads that fail run. Any report fails the run, of the module or of the server; known reports of the
# server would be named, with the reason, in tests/valgrind.supp.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- parked wakeups hazards faults lifecycle::settings commands::replies renamed_commands

# Both modules, with line numbers.
CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only nice -n 5 \
    cargo build -q --profile quick --locked --lib -p redis_lock -p redis_lock_fault_module --target-dir "$dir/module"
LOCK_MODULE=$dir/module/quick/libredis_lock.so
LOCK_FAULT_MODULE=$dir/module/quick/libredis_lock_fault_module.so

reports=$dir/reports
rm -rf "$reports"
mkdir -p "$reports"
LOCK_SERVER=$dir/server
cat >"$LOCK_SERVER" <<WRAPPER
#!/bin/sh
exec valgrind -q --tool=memcheck --leak-check=full --show-leak-kinds=definite --num-callers=30 \\
    --fair-sched=try --suppressions="$PWD/tests/valgrind.supp" --log-file="$reports/server.%p" \\
    "$dir/redis-server" "\$@"
WRAPPER
chmod +x "$LOCK_SERVER"
LOCK_PATIENCE=60
LOCK_CLEAN_END=1
export LOCK_MODULE LOCK_FAULT_MODULE LOCK_SERVER LOCK_PATIENCE LOCK_CLEAN_END

# Left out: tests that observe a wait, a lease or a kept place of about 40 ms, which is too short here; and tests that
# measure memory, which would measure valgrind's.
brief='a_block_that_timed_out_is a_place_is_given_up a_kept_place_is_passed in_the_event_of_an_expiry
    in_the_timer_at_a_leases_end resp2_clients_are_answered slices_of_short_blocks
    persist_makes_the_waiter_wait the_end_of_the_lease_without the_lease_starts_at_the_grant
    withholder_names_the_holder_at memory::'
# shellcheck disable=SC2046,SC2086 # words
set -- "$@" $(printf -- '--skip %s ' $brief)

status=0
cargo test --profile quick --locked --test server -- --test-threads "${THREADS:-4}" "$@" || status=$?
# With -q valgrind writes reports only.
servers=$(find "$reports" -type f | wc -l)
found=$(find "$reports" -type f -size +0 | wc -l)
find "$reports" -type f -size +0 -exec cat {} +
echo "valgrind: reports of $found servers out of $servers ($(valgrind --version), reports in $reports)"
[ "$status" -eq 0 ] && [ "$found" -eq 0 ]
