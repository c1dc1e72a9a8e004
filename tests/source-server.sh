#!/bin/sh
# source-server.sh DIR asan|plain: DIR/redis-server, the server of this Debian release, built from its source package
# for the memory tests. Takes some minutes the first time; nothing is installed.
#
# Both use the C library's allocator: "asan" with AddressSanitizer built in, "plain" for valgrind, which supports that
# allocator and not the server's usual one.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -x "$dir/redis-server" ] && exit
case $2 in
    asan) sanitizer=address ;;
    plain) sanitizer= ;;
esac
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/apt.sh"

release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
private_apt "$dir/.apt" deb-src "$release" "$release-security"
rm -rf "$dir/source" && mkdir -p "$dir/source"
cd "$dir/source"
apt-get -qq --download-only source redis
tar -xf redis_*.orig.tar.* --strip-components 1
echo "source-server: building the upstream part of $(ls redis_*.dsc) ($2)"
if ! nice -n 5 make -j2 -C src SANITIZER="$sanitizer" MALLOC=libc BUILD_TLS=no redis-server >build.log 2>&1; then
    tail -n 20 build.log
    exit 1
fi
cp src/redis-server "$dir/redis-server.new"
mv "$dir/redis-server.new" "$dir/redis-server"
cd "$dir"
rm -rf "$dir/source" "$dir/.apt"
"$dir/redis-server" --version
