#!/bin/sh
# pages.sh: makes the files of packages that are neither programs nor in the repository, in target/pages:
#
#   NAME-lock-commands.7, NAME-lock-settings.7  manual pages, from docs/COMMANDS.md and redis.conf.example
#                                               (NAME: redis, valkey)
#   redis-lock.1, redis-lock.{bash,zsh,fish}    the manual and the completions of the command line, which it prints
#   copyright, NAME/changelog.Debian            for Debian's packages
#   NAME/README.Debian, NAME/doc                with the paths of Valkey in its package; the documents and examples
#   CRATE-THIRD-PARTY                           licences of the crates that are linked into a file
#
# Needs lowdown and the command line that scripts/build-packaged.sh has built. SOURCE_DATE_EPOCH is the date of the pages (the last commit's).
set -eu
cd "$(dirname "$0")/.."
. packaging/common.sh
client=target/packaged/$host/release/redis-lock
pages=target/pages
command -v lowdown >/dev/null || { echo 'pages: lowdown is missing (apt-get install lowdown)' >&2; exit 1; }
rm -rf $pages
mkdir -p $pages/redis $pages/valkey $pages/cli

# Links as their words; a link may continue on the next line.
unlinked() { sed -z -E 's/\[([^]]*)\]\([^)]*\)/\1/g'; }

# page FILE TITLE PURPOSE: a manual page of section 7, from Markdown. Code is bold: the fonts of constant width that
# lowdown names are missing in groff 1.23 for terminals.
page() {
    {
        # The volume is the middle of the header: that of lowdown leaves no room for the titles in 80 columns.
        printf 'title: %s\nsection: 7\nvolume: Lock module\ndate: %s\n\n# NAME\n\n%s - %s\n\n' "$2" "$day" "$2" "$3"
        cat
        printf '\n# SEE ALSO\n\n%s\n' "$see"
    } | lowdown -s -Tman | sed -E 's/\\f(C|\(C[A-Z]|\[C[A-Z]*\])/\\fB/g; s/^\.ft C.*/.ft B/' >"$1"
}

for name in redis valkey; do
    see="redis-lock(1), $name-lock-commands(7), $name-lock-settings(7), $name-server(1); the files in
/usr/share/doc/$name-lock-module."
    unlinked <docs/COMMANDS.md | awk -f packaging/man.awk |
        page $pages/$name-lock-commands.7 $name-lock-commands "commands of the lock module of $name-server"
    scripts/documents.sh deb $pages/$name/doc
    sed "s|/redis|/$name|g" redis.conf.example >$pages/$name/doc/examples/redis.conf.example
    sed "s/redis/$name/g; s/$name.conf.example/redis.conf.example/; s/lib${name}_lock/libredis_lock/" \
        packaging/debian/README.Debian >$pages/$name/README.Debian
    awk -f packaging/settings.awk $pages/$name/doc/examples/redis.conf.example |
        page $pages/$name-lock-settings.7 $name-lock-settings "settings of the lock module of $name-server"
done

$client man >$pages/redis-lock.1
# Terminals have these fonts in every groff; an older one does not warn of the others.
if grep -nE '\\f[^RBI]|^\.ft [^RBI]' $pages/*.[17] >&2; then
    echo 'pages: a font that a terminal lacks' >&2
    exit 1
fi
if command -v groff >/dev/null; then
    complaints=$(groff -ww -z -man -Tutf8 $pages/*.[17] 2>&1)
    [ -z "$complaints" ] || { printf 'pages: groff complains:\n%s\n' "$complaints" >&2; exit 1; }
fi
for shell in bash zsh fish; do $client completions $shell >$pages/redis-lock.$shell; done

for package in redis-lock-module:redis valkey-lock-module:valkey redis-lock:cli; do
    cat >"$pages/${package#*:}/changelog.Debian" <<TEXT
${package%:*} ($version-1) unstable; urgency=medium

  * Version $version: changelog.gz has the changes.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
TEXT
done

{
    cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: redis-lock

Files: *
Copyright: 2026, the redis-lock authors
License: BSD-3-Clause
Comment: The program is linked with the crates of Rust that THIRD-PARTY.gz beside
 this file lists, with their licences.

License: BSD-3-Clause
TEXT
    sed -n '/^Redistribution/,$p' LICENSE | sed 's/^$/./; s/^/ /'
} >$pages/copyright

for crate in redis_lock redis-lock-cli; do third_party $crate | gzip -9n >$pages/$crate-THIRD-PARTY.gz; done
