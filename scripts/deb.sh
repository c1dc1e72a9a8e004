#!/bin/sh
# deb.sh: makes Debian's packages redis-lock-module, valkey-lock-module and redis-lock, and prints their files:
# target/debian/*.deb. Their assets and dependencies are in Cargo.toml and cli/Cargo.toml.
#
# DEB_REVISION (1) is the revision of the packages. They need the C library of the Debian that they are built on, or a
# newer one: build for Debian 12 and 13 on Debian 12.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
cargo deb --version >/dev/null 2>&1 || { echo 'deb: cargo-deb is missing: cargo install --locked cargo-deb' >&2; exit 1; }
scripts/build-packaged.sh "$host" redis_lock
scripts/build-packaged.sh "$host" redis-lock-cli
scripts/pages.sh

rm -rf target/debian
deb() {
    CARGO_TARGET_DIR=target/packaged cargo deb --quiet --no-build --no-strip --locked --target "$host" \
        --deb-revision "${DEB_REVISION:-1}" --output target/debian/ "$@"
}
deb -p redis_lock
deb -p redis_lock --variant valkey
deb -p redis-lock-cli
for package in target/debian/*.deb; do
    echo "    needs $(dpkg-deb -f "$package" Depends)"
done
