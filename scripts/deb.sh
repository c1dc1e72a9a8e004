#!/bin/sh
# deb.sh: makes Debian's packages redis-lock-module, valkey-lock-module and redis-lock, and prints their files:
# target/debian/*.deb. Their assets and dependencies are in Cargo.toml and cli/Cargo.toml.
#
# DEB_REVISION (1) is the revision of the packages. They need the C library of the Debian that they are built on, or a
# newer one: build for Debian 12 and 13 on Debian 12. On x86-64, with Rust's library and the cross compiler for arm64
# (see build-packaged.sh), also the module's packages for arm64.
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

# Their files are the same but for the module, which needs the same libraries.
arm=aarch64-unknown-linux-gnu
if [ "$(uname -m)" = x86_64 ] && scripts/build-packaged.sh $arm redis_lock; then
    module=release/libredis_lock.so
    [ "$(glibc "target/packaged/$arm/$module")" = "$(glibc "target/packaged/$host/$module")" ] ||
        { echo 'deb: the module for arm64 needs another glibc' >&2; exit 1; }
    for package in target/debian/*-lock-module_*_amd64.deb; do
        rm -rf target/staged
        dpkg-deb -R "$package" target/staged
        install -m 755 target/packaged/$arm/$module target/staged/usr/lib/*/modules/libredis_lock.so
        sed -i 's/^Architecture: .*/Architecture: arm64/' target/staged/DEBIAN/control
        (cd target/staged && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums)
        dpkg-deb --root-owner-group -b target/staged target/debian
    done
else
    echo 'deb: left out: the packages for arm64' >&2
fi
for package in target/debian/*.deb; do
    echo "    needs $(dpkg-deb -f "$package" Depends)"
done
