#!/bin/sh
# test-python.sh [OPTION OF PYTEST...]: format, types and tests of clients/python, on real servers, and redis-py's own
# tests of its lock. The module is LOCK_MODULE, by default that of `make build`.
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
ruff format --cache-dir "$there/ruff" --check .
ruff check --cache-dir "$there/ruff" .
mypy --cache-dir "$there/mypy" src
pytest -o cache_dir="$there/pytest" "$@"
