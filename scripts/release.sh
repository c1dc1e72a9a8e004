#!/bin/sh
# release.sh: builds and checks all files of a release, in dist (docs/RELEASING.md): Debian packages, archives for x86-64
# and arm64, an image, lists of the linked crates, SHA256SUMS. Needs root, for the image.
#
# It refuses a tree with changes, and a version without a section in CHANGELOG.md or with another tag. With TRIAL=1
# these are warnings: for a trial before the release.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C
machine=$(uname -m)
dist=$PWD/dist
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

fail() { echo "release: FAILED: $1" >&2; exit 1; }
refuse() {
    if [ -z "${TRIAL:-}" ]; then echo "release: $1" >&2; exit 1; fi
    echo "release: trial, would be refused: $1" >&2
}

# --- Before anything is built ---

missing=
# tool NAME HOW COMMAND...: notes a tool as missing unless the command succeeds.
tool() {
    name=$1 how=$2
    shift 2
    "$@" >/dev/null 2>&1 </dev/null || { echo "release: $name is missing: $how" >&2; missing=1; }
}
arm=aarch64-unknown-linux-gnu
tool git 'apt-get install git' git --version
tool cargo-deb 'cargo install --locked cargo-deb' cargo deb --version
tool lowdown 'apt-get install lowdown' command -v lowdown
tool dpkg-shlibdeps 'apt-get install dpkg-dev' command -v dpkg-shlibdeps
tool objdump 'apt-get install binutils' command -v objdump
tool man 'apt-get install man-db' command -v man
tool umoci 'apt-get install umoci' command -v umoci
tool root 'the files of the image belong to root: sudo make release' test "$(id -u)" -eq 0
if [ "$machine" != aarch64 ]; then
    tool 'the cross compiler' 'apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross' test -d /usr/aarch64-linux-gnu/include
    tool 'the cross compiler' 'apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross' command -v aarch64-linux-gnu-gcc
    tool "Rust's library for arm64" "rustup target add $arm" test -d "$(rustc --print target-libdir --target $arm)"
fi
[ -z "$missing" ] || exit 1

. packaging/common.sh
scripts/lint.sh >"$work/lint" || { cat "$work/lint" >&2; fail 'make lint'; }
changes=$(git status --porcelain) || fail 'not a clone of the repository'
[ -z "$changes" ] || refuse "the tree has changes, commit or remove them:
$changes"
section=$(sed -n "/^## $version - [0-9]\{4\}-[0-9][0-9]-[0-9][0-9]\$/,/^## /p" CHANGELOG.md | sed '1d; /^## /d; /^$/d')
[ -n "$section" ] || refuse "CHANGELOG.md has no section '## $version - YEAR-MONTH-DAY', or nothing in it"
for tag in $(git tag --points-at HEAD --list 'v*'); do
    [ "$tag" = "v$version" ] || refuse "this commit has the tag $tag, and Cargo.toml says $version"
done
tagged=$(git rev-parse --quiet --verify "v$version^{commit}") || :
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || refuse "the tag v$version is another commit: raise the version in Cargo.toml"

# --- Build ---

rm -rf "$dist" target/debian target/dist
mkdir -p "$dist"
scripts/tarball.sh x86_64-unknown-linux-gnu $arm
scripts/image.sh
scripts/deb.sh
cp target/debian/*.deb target/dist/*.tar.gz target/dist/*.cdx.json target/dist/*-oci.tar "$dist/"
sbom redis-lock-cli "$host" >"$dist/redis-lock-$version-$machine-linux-gnu.cdx.json"
(cd "$dist" && sha256sum -- * >SHA256SUMS)

# --- Check ---

(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || fail 'checksums'

# The names in the table of docs/PACKAGES.md.
# shellcheck disable=SC2016 # the names are in backticks
sed -n 's/^|[^|]*|[^|`]*`\([^`|]*VERSION[^`|]*\)`.*/\1/p' docs/PACKAGES.md >"$work/names"
[ -s "$work/names" ] || fail 'docs/PACKAGES.md names no files'
while read -r name; do
    # shellcheck disable=SC2046 # a pattern
    ls "$dist"/$(echo "$name" | sed "s/_VERSION_ARCH/_$version-*_*/; s/-VERSION-ARCH/-$version-*/") >/dev/null 2>&1 ||
        fail "docs/PACKAGES.md names $name, which was not built"
done <"$work/names"

for package in "$dist"/*.deb; do
    case $(dpkg-deb -f "$package" Version) in "$version"-*) ;; *) fail "$package has another version" ;; esac
    dpkg-deb -x "$package" "$work/$(basename "$package")"
done
for archive in "$dist"/*.tar.gz; do tar -xzf "$archive" -C "$work"; done

# One module a processor, in packages, archives and the image.
for pair in amd64:x86_64 arm64:aarch64; do
    for module in "$work"/*_"${pair%:*}".deb/usr/lib/*/modules/libredis_lock.so; do
        cmp "$module" "$work"/*-"${pair#*:}"-linux-gnu/libredis_lock.so || fail "$module is not the module of the archive"
    done
done
mkdir "$work/layout"
tar -C "$work/layout" -xf "$dist"/*-oci.tar
umoci unpack --image "$work/layout:$version" "$work/bundle" >/dev/null
cmp "$work/bundle/rootfs/libredis_lock.so" "$work"/*-"$machine"-linux-gnu/libredis_lock.so || fail 'the image has another module'

# The number that the server shows for 1.2.3 is 10203.
number=$(echo "$version" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
client=$(command -v redis-cli || command -v valkey-cli)
loads() {
    "$LOCK_SERVER" --port 0 --unixsocket "$work/socket" --save '' --dir "$work" --logfile "$work/log" --loadmodule "$1" >/dev/null 2>&1 &
    pid=$!
    until [ "$("$client" -s "$work/socket" PING 2>/dev/null)" = PONG ]; do
        kill -0 $pid 2>/dev/null || { tail -n 5 "$work/log" >&2; fail "$1 does not load"; }
        sleep 0.1
    done
    seen=$("$client" -s "$work/socket" MODULE LIST | grep -A 3 '^lock$' | grep -A 1 '^ver$' | tail -n 1)
    [ "$seen" = "$number" ] || fail "$1: MODULE LIST says version $seen, not $number"
    [ "$("$client" -s "$work/socket" LOCK.ACQUIRE key owner)" -gt 0 ] || fail "$1: LOCK.ACQUIRE"
    "$client" -s "$work/socket" SHUTDOWN NOSAVE >/dev/null 2>&1 || :
    wait $pid || :
    pid=
    rm -f "$work/log" "$work/socket"
    loaded=$((loaded + 1))
}
loaded=0
case $machine in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) debian=$machine ;; esac
for module in "$work"/*_"$debian".deb/usr/lib/*/modules/libredis_lock.so "$work"/*-"$machine"-linux-gnu/libredis_lock.so; do loads "$module"; done

said=$(find "$work" -path "*_$debian.deb/usr/bin/redis-lock" -exec {} --version \;)
[ "$said" = "redis-lock $version" ] || fail "the command line says: $said"

pages=0
for page in "$work"/*.deb/usr/share/man/man*/*; do
    man --warnings -E UTF-8 -l "$page" >"$work/page" 2>"$work/warnings" || fail "${page#"$work"/} does not render"
    # Other than of words that are wider than the cell of a table.
    if grep -v 'warning .*: cannot \(adjust\|break\) line' "$work/warnings" >&2 || ! grep -q '^NAME' "$work/page"; then
        fail "${page#"$work"/}"
    fi
    pages=$((pages + 1))
done

# --- Summary ---

printf '\nVersion %s, commit %s\n\n' "$version" "$(git log -1 --format='%h, %cs')"
printf '%-58s %9s  %s\n' File Bytes SHA-256
(cd "$dist" && for file in *; do printf '%-58s %9s  %.16s\n' "$file" "$(stat -c %s "$file")" "$(sha256sum <"$file")"; done)
printf '\nchecked: the checksums; the files that docs/PACKAGES.md names; %s modules load (%s); %s manual pages render\n' \
    $loaded "$("$LOCK_SERVER" --version | cut -d' ' -f 1-3)" $pages
[ -z "${TRIAL:-}" ] || echo 'a trial: not for publication'
