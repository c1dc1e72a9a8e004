#!/bin/sh
# asan.sh DIR [TEST-OPTION...]: the server tests with AddressSanitizer in the server and in the module.
# DIR holds the server (tests/source-server.sh DIR asan) and gets the module, built the same way. Both share one
# allocator, so every read or write of freed memory and every double free, in the server or in the module, is a report.
# So is, at the end of each server, every block without a pointer to it. Any report fails the run. A server that is
# killed during a test reports no leaks.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
host=$(rustc -vV | sed -n 's/^host: //p')

# The instrumented modules. The sanitizer is an unstable option, which every stable compiler accepts with RUSTC_BOOTSTRAP.
RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cforce-frame-pointers=yes' nice -n 5 cargo build -q --profile quick \
    --locked --lib -p redis_lock -p redis_lock_fault_module --target "$host" --target-dir "$dir/module"
LOCK_MODULE=$dir/module/$host/quick/libredis_lock.so
LOCK_FAULT_MODULE=$dir/module/$host/quick/libredis_lock_fault_module.so
LOCK_SERVER=$dir/redis-server
LOCK_PATIENCE=60
LOCK_CLEAN_END=1
export LOCK_MODULE LOCK_FAULT_MODULE LOCK_SERVER LOCK_PATIENCE LOCK_CLEAN_END

reports=$dir/reports
rm -rf "$reports"
mkdir -p "$reports"
# shellcheck disable=SC2086 # TESTED is options, one a word; the Makefile sets it
cargo test -q $TESTED --test server --no-run
# The clock shim is preloaded, so the sanitizer runtime is not the first library.
export ASAN_OPTIONS="log_path='$reports/report':detect_leaks=1:detect_stack_use_after_return=1:verify_asan_link_order=0"

# Freed memory is kept for a while, so that its use is found: tests that measure memory are left out.
status=0
# shellcheck disable=SC2086
cargo test $TESTED --test server -- --test-threads "${THREADS:-4}" --skip memory:: "$@" || status=$?
# The leak check stops all threads of a server that ends, and fails with "Tracer caught signal" if one has just ended.
# That is no leak.
found=0 unsearched=0
for report in "$reports"/report.*; do
    [ -f "$report" ] || continue
    if grep -q 'LeakSanitizer has encountered a fatal error' "$report" && ! grep -q 'ERROR: ' "$report"; then
        unsearched=$((unsearched + 1))
    else
        found=$((found + 1))
        cat "$report"
    fi
done
echo "asan: $found reports ($("$LOCK_SERVER" --version | cut -d' ' -f1-3); $unsearched servers not searched for leaks; reports in $reports)"
[ "$status" -eq 0 ] && [ "$found" -eq 0 ]
