#!/bin/sh
# test-versions.sh [COMMIT]: two versions of the module on the same data, both ways (tests/versions): this one, and that of
# COMMIT, which is built from git into target/versions. Without COMMIT: the last tag v* before this commit; without
# a tag, FIRST. The Makefile sets TESTED (cargo's options), LOCK_MODULE and LOCK_SERVER.
set -eu
cd "$(dirname "$0")/.."
FIRST=46aaab1 # without tickets, READ WRITE and semaphores as they are now

previous=${1:-$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || echo $FIRST)}
commit=$(git rev-parse --verify --quiet "$previous^{commit}") || {
    echo "test-versions: $previous is not in this clone: git fetch --unshallow --tags" >&2
    exit 1
}
export LOCK_OTHER_MODULE="$PWD/target/versions/$commit.so"
if [ ! -f "$LOCK_OTHER_MODULE" ]; then
    echo "test-versions: building $(git log -1 --format='%h, %cs: %s' "$commit")"
    rm -rf target/versions/tree
    mkdir -p target/versions/tree
    git archive "$commit" | tar -xf - -C target/versions/tree
    (cd target/versions/tree && cargo build --quiet --profile quick --locked --lib -p redis_lock --target-dir ../build)
    install -m 755 target/versions/build/quick/libredis_lock.so "$LOCK_OTHER_MODULE"
fi
# shellcheck disable=SC2086 # TESTED is options, one a word
cargo test $TESTED --test versions -- --test-threads 2
