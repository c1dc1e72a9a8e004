#!/bin/sh
# Counts lines of code, of comments and of tests, and files, a folder a row: what a reader has to carry.
# Usage: count.sh [FOLDER...] (default: every part of the repository)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- src/lock src/commands src/module src cli clients/go clients/java clients/node clients/python clients/rust \
    examples tests/server tests/clients tests/faults tests/linearizability tests/redisson tests benches \
    ops packaging scripts site docs .

printf '%-22s %6s %8s %9s %8s %8s\n' folder files code comments tests text
for folder; do
    # A file counts as tests by its folder or its name, an item behind #[cfg(test)] up to its end. What is of others, a
    # header of the server, does not count.
    git ls-files -z -- "$folder" | xargs -0 awk -v folder="$folder" '
        FNR == 1 {
            kind = ""
            if (FILENAME ~ /\.(rs|java|py|go|c|h|js|mjs|ts|rb|sh|awk)$/) kind = "code"
            else if (FILENAME ~ /\.md$/) kind = "text"
            if (kind == "code" && FILENAME ~ /(^|\/)(tests?|testing|spring-suite)(\/|\.|_[^\/]*$)|_test\.go$/) kind = "tests"
            if (FILENAME ~ /\/headers\//) kind = ""
            files += kind != ""
            in_comment = in_tests = in_text = 0
            is_python = FILENAME ~ /\.py$/
        }
        kind == "code" && /^#\[cfg\(test\)\]$/ { kind = "tests"; in_tests = 1 }
        in_tests && /^(}|[a-z].*;$)/ { count["tests"]++; kind = "code"; in_tests = 0; next }
        kind == "" || /^[ \t]*$/ { next }
        # A docstring is a text of three quotes that begins a line; `#:` documents a variable.
        kind == "code" && is_python {
            if (!in_text) is_doc = /^[ \t]*("""|#:)/
            if (gsub(/"""/, "&") % 2) in_text = !in_text
            if (is_doc) { comments++; next }
        }
        kind == "code" && (in_comment || /^[ \t]*(\/\/|\/\*|#($|[ !][^\[]))/ ) {
            comments++
            if (/\/\*/) in_comment = 1
            if (/\*\//) in_comment = 0
            next
        }
        { count[kind]++ }
        END {
            printf "%-22s %6d %8d %9d %8d %8d\n", folder, files, count["code"], comments, count["tests"], count["text"]
        }'
done
