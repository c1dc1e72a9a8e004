#!/bin/sh
# run.sh [quick] [java] [python] [waits]: builds what is measured from this clone, measures, and writes
# benches/results/clients.md (a trial: target/BENCHMARKS-CLIENTS-trial.md). Needs the built module, a server, Java 17,
# Maven and Python 3; `make bench-clients` calls it. Without a part: all of them, five to six minutes.
#
# redis-py comes from PyPI into a virtual environment below target/, the libraries for Java from Maven Central.
set -eu
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1 LOCK_SERVER="${LOCK_SERVER:-$(scripts/server.sh)}"

REDIS_PY=8.1.0 # one version for all who measure

venv=target/bench-clients/venv
[ -x $venv/bin/python ] || python3 -m venv $venv
[ "$($venv/bin/python -c 'import redis; print(redis.__version__)' 2>/dev/null)" = $REDIS_PY ] ||
    $venv/bin/pip -q --disable-pip-version-check install redis==$REDIS_PY

mvn -B -ntp -Dstyle.color=never -q -f benches/clients/java/with-packages -am -pl :bench-clients package \
    -Dmaven.test.skip=true -Dmaven.source.skip=true -Dmaven.javadoc.skip=true

exec $venv/bin/python benches/clients/python/bench.py "$@"
