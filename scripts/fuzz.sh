#!/bin/sh
# fuzz.sh SECONDS: runs every fuzz target for this time and prints the number of inputs. The corpus and failing inputs
# are kept in target/fuzz. The sanitizers and the coverage are unstable options of every stable compiler.
set -eu
cd "$(dirname "$0")/.."
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
RUSTC_BOOTSTRAP=1
export LOCK_MODULE RUSTC_BOOTSTRAP

status=0
for target in arguments parser commands; do
    mkdir -p "target/fuzz/corpus/$target" "target/fuzz/findings"
    log=target/fuzz/$target.log
    nice -n 5 cargo fuzz run --fuzz-dir tests/fuzz --target-dir target/fuzz --sanitizer none "$target" \
        "target/fuzz/corpus/$target" -- -max_total_time="$1" -max_len=256 -timeout=60 \
        -artifact_prefix=target/fuzz/findings/ >"$log" 2>&1 || {
        status=1
        tail -n 100 "$log"
    }
    echo "fuzz: $target: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 executions in \2 s, no finding/p' "$log" | grep . || echo 'see above')"
done
exit "$status"
