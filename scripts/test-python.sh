#!/bin/sh
# test-python.sh [OPTION OF PYTEST...]: format, lints, types and tests of clients/python, on real servers, then redis-py's
# own tests of its lock (not with options). The module is LOCK_MODULE, by default that of `make build`.
set -eu
cd "$(dirname "$0")/.."
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
PYTHONDONTWRITEBYTECODE=1
export LOCK_MODULE LOCK_SERVER PYTHONDONTWRITEBYTECODE
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }

# The environment of the tests, made anew when the lists of packages change.
there=$PWD/target/clients/python
needs=$(sha256sum clients/python/pyproject.toml clients/python/requirements-test.txt)
if [ "$needs" != "$(cat "$there/installed" 2>/dev/null)" ]; then
    rm -rf "$there"
    mkdir -p "$there"
    python3 -m venv "$there/venv"
    "$there/venv/bin/pip" install --quiet --disable-pip-version-check -r clients/python/requirements-test.txt
    echo "$needs" >"$there/installed"
fi
PATH=$there/venv/bin:$PATH
cd clients/python

# part NAME COMMAND...: its name and closing line; all that it printed if it fails.
part() {
    name=$1
    shift
    "$@" >"$there/output" 2>&1 || {
        cat "$there/output"
        echo "$name: failed"
        exit 1
    }
    echo "$name: $(tail -n 1 "$there/output")"
}

part format ruff format --no-cache --check .
part lints ruff check --no-cache .
part types mypy --cache-dir "$there/mypy"
if [ $# -gt 0 ]; then
    exec pytest -p no:cacheprovider "$@"
fi
# Most tests wait for servers, so more run at a time than there are cores.
part tests pytest -p no:cacheprovider -n 4
part "redis-py's own tests" python tests/redis_py_suite.py
