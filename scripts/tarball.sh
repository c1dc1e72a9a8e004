#!/bin/sh
# tarball.sh [TARGET...]: the module for Linux systems other than Debian, in target/dist: for each target (x86-64, and
# arm64 where Rust and the cross compiler have it) an archive with libredis_lock.so, stripped, and the files that an
# operator needs; a list of the linked crates (CycloneDX); SHA256SUMS of all of these.
#
# Two runs with the same commit, Rust and C compiler give the same bytes, in any directory (make test-tarball). A module
# that needs a newer C library than Debian 12 has is refused: build it there.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
NEWEST_GLIBC=2.36 # Debian 12
dist=target/dist
optional=
if [ $# -eq 0 ]; then
    set -- x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
    optional=aarch64-unknown-linux-gnu
fi
rm -rf $dist
mkdir -p $dist

for target in "$@"; do
    if ! scripts/build-packaged.sh "$target" redis_lock; then
        [ "$target" = "$optional" ] || exit 1
        echo "tarball: left out: $target" >&2
        continue
    fi
    module=target/packaged/$target/release/libredis_lock.so
    needed=$(glibc "$module")
    if [ "$(printf '%s\n' "$needed" $NEWEST_GLIBC | sort -V | tail -n 1)" != $NEWEST_GLIBC ]; then
        echo "tarball: $module needs glibc $needed; build it on a system with $NEWEST_GLIBC or older (Debian 12)" >&2
        exit 1
    fi
    name=redis-lock-module-$version-${target%%-*}-linux-gnu
    rm -rf target/staged
    mkdir target/staged
    scripts/documents.sh archive "target/staged/$name"
    install -m 755 "$module" "target/staged/$name/"
    third_party redis_lock >"target/staged/$name/THIRD-PARTY"
    sbom redis_lock "$target" >"$dist/$name.cdx.json"
    cp "$dist/$name.cdx.json" "target/staged/$name/"
    chmod 644 "target/staged/$name/THIRD-PARTY" "target/staged/$name/$name.cdx.json"
    (cd "target/staged/$name" && find . -type f | LC_ALL=C sort | xargs sha256sum >../sums && mv ../sums SHA256SUMS && chmod 644 SHA256SUMS)
    tar -C target/staged --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
        -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
    echo "$dist/$name.tar.gz: needs glibc $needed or newer"
done
(cd $dist && sha256sum -- * >SHA256SUMS)
