#!/bin/sh
# image.sh: makes an image for Kubernetes that holds the module and copies it into a volume, as an init container of the
# server (packaging/kubernetes/values.yaml): target/dist/redis-lock-module-VERSION-ARCH-oci.tar.
#
# The image has two files: the module, and Debian's static busybox for the copy. Needs root, umoci and apt's mirror.
# With the same module and busybox the archive is the same bytes.
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
command -v umoci >/dev/null || { echo 'image: umoci is missing (apt-get install umoci)' >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo 'image: it needs root, which owns the files of the image' >&2; exit 1; }
scripts/build-packaged.sh "$host" redis_lock
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(. tests/apt.sh && private_apt "$work/apt" own && cd "$work" && apt-get -qq download busybox-static)
dpkg -x "$work"/busybox-static_*.deb "$work/busybox"

mkdir -p "$work/files/bin" target/dist
install -m 755 "$work/busybox/bin/busybox" "$work/files/bin/busybox"
install -m 755 "target/packaged/$host/release/libredis_lock.so" "$work/files/libredis_lock.so"
find "$work/files" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
image=$work/oci:$version
umoci init --layout "$work/oci"
umoci new --image "$image"
umoci insert --image "$image" --history.created "$date" "$work/files/bin" /bin
umoci insert --image "$image" --history.created "$date" "$work/files/libredis_lock.so" /libredis_lock.so
# By another name first: a pod's container that restarts may have the file mapped.
# shellcheck disable=SC2016 # for the shell in the image
umoci config --image "$image" --created "$date" --history.created "$date" --config.user 65532:65532 \
    --config.entrypoint /bin/busybox --config.entrypoint sh --config.entrypoint -c \
    --config.entrypoint 'cp /libredis_lock.so "$0/.new" && mv "$0/.new" "$0/libredis_lock.so"' --config.cmd /modules
umoci gc --layout "$work/oci"
archive=target/dist/redis-lock-module-$version-${host%%-*}-oci.tar
tar -C "$work/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$archive" .
(cd target/dist && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS)
echo "$archive: podman load -i, ctr image import, or skopeo copy oci-archive:$archive docker://..."
