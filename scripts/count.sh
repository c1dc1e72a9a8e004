#!/bin/sh
# Counts lines of code, of comments and of tests, and files, a folder a row: what a reader has to carry.
# Usage: count.sh [FOLDER...] (default: every part of the repository)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- src/lock src/commands src/module src/redisson src cli clients/go clients/java clients/node clients/python clients/rust \
    examples tests/server tests/clients tests/faults tests/linearizability tests/redisson tests benches \
    ops packaging scripts site docs .

printf '%-22s %6s %8s %9s %8s %8s\n' folder files code comments tests text
for folder; do
    # A file counts as tests by its folder or its name; a `mod tests` within a file does to the end of the file.
    git ls-files -z -- "$folder" | xargs -0 awk -v folder="$folder" '
        FNR == 1 {
            kind = ""
            if (FILENAME ~ /\.(rs|java|py|go|c|h|js|mjs|ts|rb|sh|awk)$/) kind = "code"
            else if (FILENAME ~ /\.md$/) kind = "text"
            if (kind == "code" && FILENAME ~ /(^|\/)tests?(\/|\.|_[^\/]*$)|_test\.go$/) kind = "tests"
            files += kind != ""
            in_comment = 0
        }
        kind == "code" && /^#\[cfg\(test\)\]$/ { at_test = FNR }
        kind == "code" && /^mod [a-z_]+ \{$/ && at_test == FNR - 1 { kind = "tests"; code-- }
        kind == "" || /^[ \t]*$/ { next }
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
