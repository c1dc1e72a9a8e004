#!/bin/sh
# run.sh [quick] [java] [python] [go] [node] [rust] [waits]: builds what is measured from this clone, measures, and writes
# benches/results/clients.md (a trial: target/BENCHMARKS-CLIENTS-trial.md). Needs the built module, a server, Python 3,
# and for their parts Java 17 and Maven, Go, Node; `make bench-clients` calls it. Without a part: all of them, eight to
# ten minutes.
#
# The libraries come from PyPI, Maven Central, the proxy of Go's modules and npm, into places below target/.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1 LOCK_SERVER="${LOCK_SERVER:-$(scripts/server.sh)}"

REDIS_PY=8.1.0 # one version for all who measure

there=$PWD/target/bench-clients
parts=$(echo " $* " | sed 's/ quick / /')
# measures PART...: one of them is to be measured.
measures() {
    [ -n "${parts# }" ] || return 0
    for part; do case $parts in *" $part "*) return 0 ;; esac done
    return 1
}

venv=$there/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
[ "$("$venv/bin/python" -c 'import redis; print(redis.__version__)' 2>/dev/null)" = $REDIS_PY ] ||
    "$venv/bin/pip" -q --disable-pip-version-check install redis==$REDIS_PY

if measures java waits; then
    mvn -B -ntp -Dstyle.color=never -q -f benches/clients/java/with-packages -am -pl :bench-clients package \
        -Dmaven.test.skip=true -Dmaven.source.skip=true -Dmaven.javadoc.skip=true
fi
if measures go; then
    GOFLAGS=-mod=readonly GOTOOLCHAIN=local go build -C benches/clients/go -o "$there/go/bench" .
fi
if measures rust; then
    cargo build -q --release --locked --manifest-path benches/clients/rust/Cargo.toml --target-dir "$there/rust"
fi
if measures node; then
    mkdir -p "$there/node/package"
    scripts/test-node.sh --pack "$there/node/package"
    cp benches/clients/node/* "$there/node"
    npm ci --prefix "$there/node" --silent --no-audit --no-fund
    npm install --prefix "$there/node" --silent --no-audit --no-fund --no-save "$there"/node/package/*.tgz
fi

exec "$venv/bin/python" benches/clients/python/bench.py "$@"
