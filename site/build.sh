#!/bin/sh
# build.sh: makes the documentation site, target/site, of the documents of the repository, and checks its links and
# examples. `make docs` sets the environment: TESTED (cargo's options), LOCK_MODULE, LOCK_FAULT_MODULE, LOCK_SERVER.
#
# target/book has the sources of the book; target/book/facts the tables that src/commands/pages.rs makes of each
# command. mdBook is taken from PATH or target/tools; where it is missing or another minor version, cargo compiles it.
set -eu
cd "$(dirname "$0")/.."
# The newest that Rust 1.85 compiles.
MDBOOK=0.4.52
book=target/book
export PATH="$PWD/target/tools/bin:$PATH"

# run NAME COMMAND...: the output of the command is shown only if it fails.
run() {
    log=target/docs-$1.log
    shift
    "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
}

# shellcheck disable=SC2086 # TESTED is options, one a word
tests() { cargo test $TESTED "$@"; }

install_mdbook() {
    echo "docs: compiling mdBook $MDBOOK into target/tools (two to five minutes)"
    nice -n 10 cargo install -q --locked mdbook --version $MDBOOK --no-default-features --features search \
        --root target/tools && return
    echo "docs: mdBook is missing: cargo install --locked mdbook --version $MDBOOK" >&2
    exit 1
}

# The documents, those of the commands in pages; links to headings of docs/COMMANDS.md lead to these pages.
copy_documents() {
    documents=$(git ls-files '*.md' | grep -v '^site/')
    for document in $documents; do mkdir -p "$book/src/$(dirname "$document")"; done
    # shellcheck disable=SC2046 # paths without spaces
    awk -v book=$book/src -v facts=$book/facts -f site/pages.awk docs/COMMANDS.md docs/COMMANDS.md \
        $(echo "$documents" | grep -v '^docs/COMMANDS.md$')
    sed -e "/^@sections/{r $book/sections" -e 'd}' site/SUMMARY.md >$book/src/SUMMARY.md
}

# Each setting is a heading with its default; the comment above it is the text.
write_settings() {
    printf '# Settings\n\n'
    awk -f packaging/settings.awk redis.conf.example | sed -E '
        s/^# DESCRIPTION$//; s/^# SETTINGS$//; s/^(: |  )//
        s/^`(lock\.[^ ]*) (.*)`$/## \1\n\nDefault: `\2`/; s/^`(.*)`$/## \1/
        s/docs\/([A-Z]+)\.md/[\1](\1.md)/g; s/README\.md/[README](..\/README.md)/'
}

# The files and directories to which the documents link. A directory gets its README as a page, or a list of its files.
copy_files() {
    sort -u $book/files | while read -r path; do
        mkdir -p "$book/src/$(dirname "$path")"
        if [ -e "$path/README.md" ]; then
            echo '<meta http-equiv="refresh" content="0; url=README.html">' >"$book/src/$path/index.html"
            continue
        fi
        cp -RL "$path" "$book/src/$(dirname "$path")/"
        [ -d "$path" ] || continue
        (cd "$path" && find . -type f | sed 's|^\./\(.*\)|<p><a href="\1">\1</a></p>|' | sort) \
            >"$book/src/$path/index.html"
    done
}

case $(mdbook --version 2>/dev/null) in
"mdbook v${MDBOOK%.*}."*) ;;
*) install_mdbook ;;
esac

rm -rf $book target/site
mkdir -p $book/facts
LOCK_PAGES="$PWD/$book/facts" run facts tests --lib --exclude redis_lock_fault_module -- commands::pages
copy_documents
write_settings >$book/src/docs/settings.md
copy_files
cp site/book.toml site/wide.css $book/
run mdbook mdbook build $book

# What the page shows without scrolling in a window of 1,280 pixels (site/wide.css).
awk '/^```/ { is_code = !is_code }
    is_code && length > 100 { printf "docs: README.md:%d: a line of code of %d columns\n", NR, length; failed = 1 }
    END { exit failed }' README.md
# The search finds a command by its option because the option is a heading (site/pages.awk).
grep -q 'id="once"' target/site/docs/lock-acquire.html || { echo 'docs: LOCK.ACQUIRE has no heading ONCE' >&2; exit 1; }
if command -v node >/dev/null; then
    fencing=docs/lock-if.html#fencing,docs/RELIABILITY.html#fencing
    node site/search.mjs target/site FENCED=$fencing fencing=$fencing once=docs/lock-acquire.html#once
else
    echo 'docs: not tried, without Node: where the search leads' >&2
fi
find target/site -name '*.html' ! -name 404.html ! -name toc.html | sort |
    xargs awk -v external=target/docs-external.txt -f site/links.awk
run examples tests --test server -- docs:: --nocapture
sed -En 's/^(examples of|blocks of|test result:)/docs: &/p' target/docs-examples.log
echo 'docs: the site is target/site/index.html'
