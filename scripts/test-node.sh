#!/bin/sh
# test-node.sh [OPTION OF NODE...]: format, types and tests of clients/node, on real servers; --pack DIRECTORY: its
# archive for npm. In a copy below target/, so that nothing is built or installed among the sources. The module is
# LOCK_MODULE, by default that of `make build`.
set -eu
cd "$(dirname "$0")/.."
there=$PWD/target/clients/node
mkdir -p "$there"
for part in src tests scripts package.json package-lock.json tsconfig.json README.md; do
    rm -rf "${there:?}/$part"
    cp -R "clients/node/$part" "$there"
done
cp LICENSE "$there"

# The environment, made anew when the list of packages changes.
needs=$(sha256sum clients/node/package-lock.json)
if [ "$needs" != "$(cat "$there/installed" 2>/dev/null)" ]; then
    npm ci --prefix "$there" --silent --no-audit --no-fund
    echo "$needs" >"$there/installed"
fi
cd "$there"
if [ "${1:-}" = --pack ]; then
    exec npm pack --silent --pack-destination "$2"
fi
cd - >/dev/null
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
export LOCK_MODULE LOCK_SERVER
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }
cd "$there"
node_modules/.bin/prettier --check --log-level warn src tests scripts
exec node scripts/test.mjs "$@"
