#!/bin/sh
# run.sh LOCK_OPS [--save]: checks the files of ops/ with redis_exporter and Prometheus, see src/main.rs. The programs
# are those in PATH, or those of Debian's packages, which are unpacked into target/ops; nothing is installed and no
# service is started.
set -eu
program=$1
shift
here=$(cd "$(dirname "$0")/../.." && pwd)
tools=$here/target/ops
mkdir -p "$tools"

# find_tool NAME...: prints the first of these programs that PATH or the unpacked packages have.
find_tool() {
    for name in "$@"; do
        if command -v "$name" 2>/dev/null; then return; fi
        if [ -x "$tools/root/usr/bin/$name" ]; then
            echo "$tools/root/usr/bin/$name"
            return
        fi
    done
    return 1
}
find_exporter() { find_tool redis_exporter prometheus-redis-exporter; }

packages=
find_exporter >/dev/null || packages=prometheus-redis-exporter
{ find_tool prometheus && find_tool promtool; } >/dev/null || packages="$packages prometheus"
if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # words
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null ||
        ! (cd "$tools" && apt-get -qq download $packages >apt.log 2>&1); then
        {
            echo 'test-ops needs redis_exporter, prometheus and promtool in PATH, or apt-get that can download'
            echo "Debian's packages $packages (apt-get update first)."
            cat "$tools/apt.log" 2>/dev/null || :
        } >&2
        exit 1
    fi
    for package in "$tools"/*.deb; do dpkg -x "$package" "$tools/root"; done
    rm -f "$tools"/*.deb
fi
LOCK_OPS_EXPORTER=$(find_exporter)
LOCK_OPS_PROMETHEUS=$(find_tool prometheus)
promtool=$(find_tool promtool)
export LOCK_OPS_EXPORTER LOCK_OPS_PROMETHEUS
# Not in Debian: it is run if it is there.
if LOCK_OPS_TELEGRAF=$(find_tool telegraf); then export LOCK_OPS_TELEGRAF; fi

cd "$here/ops"
"$promtool" check config prometheus.yml
"$promtool" test rules redis-lock.rules.test.yml
cd "$here"
"$program" "$@"
