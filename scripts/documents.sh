#!/bin/sh
# documents.sh LAYOUT DIR: the documents and examples that a package ships, in DIR. LAYOUT: archive (scripts/tarball.sh)
# or deb (Debian's packages of the module, scripts/pages.sh).
#
# A link to a file that ships too leads to its place in the package. Any other link within the repository becomes its
# text: a package has no repository around it.
set -eu
cd "$(dirname "$0")/.."
layout=$1 dir=$2
rm -rf "$dir"
mkdir -p "$dir"

# place FILE: where the package has this file of the repository.
place() {
    case $layout:$1 in
    deb:redis.conf.example | deb:users.acl.example) echo "examples/$1" ;;
    *) echo "$1" ;;
    esac
}

files='README.md SECURITY.md redis.conf.example users.acl.example'
case $layout in
archive) files="$files LICENSE CHANGELOG.md" ;;
deb) ;;
*) echo "documents: no layout $layout" >&2 && exit 2 ;;
esac
for file in $files docs/*.md docs/*.svg ops/* examples/* examples/*/*; do
    [ -f "$file" ] || continue
    install -D -m 644 "$file" "$dir/$(place "$file")"
    printf '%s\t%s\n' "$file" "$(place "$file")"
done >"$dir/.places"
cut -f 1 "$dir/.places" | grep '\.md$' | while read -r page; do
    awk -v page="$page" -v places="$dir/.places" -f packaging/shipped.awk "$page" >"$dir/$(place "$page")"
done
rm "$dir/.places"
