#!/bin/sh
# Do the tests of the core notice a change? cargo-mutants makes one small change at a time in src/lock and runs the
# tests of the core (.cargo/mutants.toml). BASE=COMMIT: only what has changed since then. SHARD=k/n: the k-th of n parts
# of all, from 0. What was caught before is not tried again (target/mutants has it; remove that to begin anew).
# A change that no test notices is listed in tests/mutants.txt with its reason, or the exit status is 1.
set -eu
cd "$(dirname "$0")/.."
version=27.1.0
PATH=$PWD/target/tools/bin:$PATH
if ! command -v cargo-mutants >/dev/null; then
    cargo install --root target/tools --locked --version $version cargo-mutants
fi
# A crate of the core alone: neither the module nor what its tests need is compiled.
core=target/mutants/core
mkdir -p $core/src $core/.cargo
rm -rf $core/src/lock
cp -R src/lock $core/src/
echo 'pub mod lock;' >$core/src/lib.rs
cp Cargo.lock $core/
cp .cargo/mutants.toml $core/.cargo/
{
    printf '[workspace]\n[package]\nname = "redis_lock"\nedition = "2021"\n[dependencies]\n'
    grep -E '^(ahash|crc16|hashbrown|indexmap|itoa|proptest|smallvec|thiserror) = ' Cargo.toml
    sed -n '/^\[profile\.quick\]/,/^$/p' Cargo.toml
} >$core/Cargo.toml
set -- --dir $core --in-place --output target/mutants --iterate --baseline skip --timeout 120 --no-times --colors never
if [ -n "${BASE:-}" ]; then
    git diff "$BASE" -- src/lock >target/mutants/diff
    set -- "$@" --in-diff target/mutants/diff
elif [ -n "${SHARD:-}" ]; then
    set -- "$@" --shard "$SHARD" --sharding round-robin
fi
# Of cargo-mutants' exit statuses 2 and 3 mean that a change was missed, or that the tests did not end.
status=0
# A directory of its own: the crate has the name of the module.
CARGO_TARGET_DIR=$PWD/$core/target PROPTEST_CASES=${CASES:-200} PROPTEST_MAX_SHRINK_TIME=1 cargo mutants "$@" || status=$?
[ $status -le 3 ] || exit $status

# A line without its numbers: they change with every edit above it.
sed -E 's/:[0-9]+:[0-9]+:/:/' target/mutants/mutants.out/missed.txt 2>/dev/null | sort -u >target/mutants/missed
grep '^src/' tests/mutants.txt | sort -u >target/mutants/known
if ! comm -23 target/mutants/missed target/mutants/known | grep . >target/mutants/news; then
    echo 'mutants: every change is noticed, or has its reason in tests/mutants.txt'
    exit 0
fi
echo 'mutants: no test notices these changes. Write one, or give the reason in tests/mutants.txt:'
cat target/mutants/news
exit 1
