#!/bin/sh
# seeded.sh [--full | --explore] [NAME...]: do the tests catch a bug? Each patch of tests/seeded/AREA/ puts one small fault into a
# private copy of the tree (target/seeded/tree; the checkout is never changed), the module is built there, and tests run
# until one fails. The first test is the one that the patch names (`try:`); if it passes, or with --full, all tests of
# the core follow and then all of the server (LOCK_SERVER names it; a patch that needs a newer server names it: `needs:
# redis-7.4`). NAME is the beginning of a patch's name (`33-`), or an area (`tokens/`). At the end a table in Markdown
# is printed; the exit status is 1 if a fault was not caught.
#
# With --explore only the faults that lie in src/lock alone are tried, and only the exploration (docs/EXPLORATION.md)
# looks for them: first to 3 steps, then to EXPLORE_DEPTH, at most EXPLORE_STATES states a scene, the scenes of the
# fault's area first. A fault that it does not find is no failure.
set -eu
cd "$(dirname "$0")/.."
root=$PWD dir=$PWD/target/seeded
tree=$dir/tree log=$dir/log table=$dir/table
mkdir -p "$tree/target" "$dir/tmp"
# The texts of Redisson's scripts are those of the checkout.
ln -sfn "$root/target/redisson" "$tree/target/redisson"

full='' explore=''
case ${1:-} in
--full) full=yes ;;
--explore)
    explore=yes
    # As `make explore` builds it: unoptimized, a search takes ten times as long.
    export CARGO_PROFILE_QUICK_OPT_LEVEL=3
    export EXPLORE_DEPTH="${EXPLORE_DEPTH:-5}" EXPLORE_STATES="${EXPLORE_STATES:-3000}"
    ;;
esac
[ -z "$full$explore" ] || shift

# If this script is stopped, the running tests are stopped too.
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; exit 130' INT TERM

# One build directory for all faults. The number of threads is that of the ordinary server tests; directories of servers
# that are killed are in a place that is emptied here.
export CARGO_TARGET_DIR=$dir/build TMPDIR=$dir/tmp
export LOCK_MODULE=$CARGO_TARGET_DIR/quick/libredis_lock.so
export LOCK_FAULT_MODULE=$CARGO_TARGET_DIR/quick/libredis_lock_fault_module.so
threads=${THREADS:-4}
# The time limits in seconds: for one test, and for all tests together.
one=120 all=900

# Makes the copy equal to the checkout: files that differ are written, so that cargo sees the change.
files() { find . \( -path ./target -o -path ./.git -o -path ./.servers \) -prune -o -type f -print; }
sync_tree() {
    files | while read -r file; do
        cmp -s "$file" "$tree/$file" && continue
        mkdir -p "$tree/$(dirname "$file")"
        cp "$file" "$tree/$file"
    done
    (cd "$tree" && files) | while read -r file; do
        [ -e "$file" ] || rm "$tree/$file"
    done
}

# Builds what the tests of this part need: those of the core are a build of the module, too; those of the server need
# the module, and some of them a build that panics on request.
build() {
    cd "$tree" || return 1
    cargo test --locked --no-run --profile quick $1 || return 1
    if [ "$1" != --lib ]; then
        cargo build --locked --lib --profile quick && chmod 755 "$LOCK_MODULE" || return 1
    fi
    if [ "$2" = faults ]; then
        cargo build --locked --lib --profile quick -p redis_lock_fault_module && chmod 755 "$LOCK_FAULT_MODULE"
    fi
}

# run SECONDS core|server [TEST...]: runs these tests, or all, until the first fails. Succeeds when all pass; otherwise
# $verdict has the reason, and $caught the name of the test that failed. `timeout` ends the tests with all servers that
# they started, by their process group.
run() {
    seconds=$1 part=$2 caught= verdict=
    shift 2
    case $part in
    core) part=--lib ;;
    server) part='--test server' ;;
    esac
    case "$part $*" in
    '--test server ' | *faults::*) faults=faults ;;
    *) faults= ;;
    esac
    if ! (build "$part" "$faults") >"$log" 2>&1; then
        verdict='DOES NOT BUILD'
        return 1
    fi
    [ $# -eq 0 ] || [ -n "$explore" ] || set -- --exact "$@"
    (cd "$tree" && exec timeout -k 10 "$seconds" cargo test --locked --profile quick $part -- \
        --test-threads "$threads" "$@") >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        if grep -q '^test .* FAILED$' "$log"; then
            kill "$pid" 2>/dev/null || true
            break
        fi
        sleep 0.1
    done
    status=0
    wait "$pid" 2>/dev/null || status=$?
    pid=
    # A server that is about to end may write one more file.
    rm -rf "$dir/tmp" 2>/dev/null || true
    mkdir -p "$dir/tmp"
    caught=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | head -n 1)
    if [ -z "$caught" ] && [ "$status" -eq 124 ]; then
        late=$(sed -n 's/^test \(.*\) has been running for over .*/\1/p' "$log" | tail -n 1)
        [ -z "$late" ] || caught="$late (it did not end)"
    fi
    verdict='NOT CAUGHT'
    [ "$status" -eq 0 ] && [ -z "$caught" ]
}

# The tests that the patches name, of the core or of the server.
tried() {
    for patch in $patches; do sed -n "s/^try: $1 //p" "$root/tests/seeded/$patch"; done | sort -u
}

# scenes PATCH: the scenes to search, those of its area first.
scenes() {
    case /${1#"$root/tests/seeded/"} in
    *many* | */multi/*) echo explore::many ;;
    *deadlock*) echo at_once_of_three_owners_with_deadlocks ;;
    *reader* | *writer* | *upgrade* | */read_write/*) echo explore::read_write ;;
    */session/*) echo one_lock_with_sessions ;;
    */semaphore/*) echo explore::semaphore ;;
    *window* | *turn*) echo one_lock_before_a_window ;;
    *ticket* | *heard*) echo one_lock_with_tickets ;;
    */tokens/*) echo one_lock_with_restarts ;;
    *delay* | *drain* | *demoted*) echo one_lock_with_changes ;;
    esac
    echo explore::
}

# judge PATCH: leaves in $caught the name of the test that fails with this fault.
judge() {
    caught=
    sync_tree
    # Without this setting git would apply the patch to the repository instead of the copy.
    if ! (cd "$tree" && GIT_CEILING_DIRECTORIES=$dir git apply --recount -C1 "$1") >"$log" 2>&1; then
        verdict='DOES NOT APPLY'
        return 1
    fi
    hint=$(sed -n 's/^try: //p' "$1")
    needs=$(sed -n 's/^needs: //p' "$1")
    LOCK_SERVER=${needs:+$root/.servers/bin/$needs}
    LOCK_SERVER=${LOCK_SERVER:-$usual}
    if [ -n "$explore" ]; then
        deepest=$EXPLORE_DEPTH
        for EXPLORE_DEPTH in 3 "$deepest"; do
            for scenes in $(scenes "$1"); do
                run "$all" core "$scenes" || { EXPLORE_DEPTH=$deepest && return 0; }
            done
        done
        return 1
    fi
    if [ -n "$hint" ] && [ -z "$full" ]; then
        run "$one" $hint || [ -z "$caught" ] || return 0
    fi
    run "$all" core && run "$all" server
    [ -n "$caught" ]
}

patches=
for patch in "$root"/tests/seeded/*/*.patch; do
    [ -z "$explore" ] || ! grep '^+++ ' "$patch" | grep -qv '^+++ b/src/lock/' || continue
    patch=${patch#"$root"/tests/seeded/} # the clone may lie in a directory with spaces, these names have none
    [ $# -gt 0 ] || patches="$patches $patch"
    for name in "$@"; do
        case $patch in "$name"* | */"$name"*) patches="$patches $patch" ;; esac
    done
done

usual=${LOCK_SERVER:-redis-server}
export LOCK_SERVER
for patch in $patches; do
    needs=$(sed -n 's/^needs: //p' "tests/seeded/$patch")
    [ -z "$needs" ] || [ -x "$root/.servers/bin/$needs" ] || tests/servers.sh .servers all
done

# A test that fails without any fault catches nothing.
sync_tree
echo 'without a fault: the tests must pass'
for part in core server; do
    names=
    [ -n "$full" ] || names=$(tried $part)
    [ -z "$explore" ] || names=$([ "$part" = server ] || echo explore::)
    if [ -n "$full" ] || [ -n "$names" ]; then
        run "$all" $part $names || { cat "$log"; exit 2; }
        # Nor does a test that does not exist.
        [ -n "$full$explore" ] || grep -q "^running $(echo $names | wc -w) tests\?$" "$log" || { cat "$log"; exit 2; }
    fi
done

total=0 good=0
printf '| Fault | Caught by |\n|---|---|\n' >"$table"
for patch in $patches; do
    total=$((total + 1))
    start=$(date +%s)
    if judge "$root/tests/seeded/$patch"; then
        good=$((good + 1))
        verdict="caught by $caught" cell="\`$caught\`"
    else
        cell="**$verdict**"
    fi
    echo "${patch%.patch}: $verdict ($(($(date +%s) - start)) s)"
    echo "| $(head -n 1 "$root/tests/seeded/$patch") | $cell |" >>"$table"
done
sync_tree

printf '\n%s of %s caught\n\n' "$good" "$total"
cat "$table"
[ -n "$explore" ] || [ "$good" -eq "$total" ]
