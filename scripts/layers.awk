# Checks which file of src/ imports which: no import runs to a higher layer. Within a layer files may import each other.
# Called by lint.sh with all files of src/. It reads paths that begin with `crate::`, in `use` and elsewhere; comments
# and unit tests are left out.

BEGIN {
    # From the lowest layer up. A file belongs to the layer with the longest matching path.
    layers = split("src/lock src/module/ffi src/module/state src/module/keyspace src/module src/module/entry " \
        "src/commands src", layer, " ")

    # The module of each file: src/lock/wait/mod.rs is lock::wait, src/lib.rs is the empty path.
    for (i = 1; i < ARGC; i++) {
        name = ARGV[i]
        sub(/^src\//, "", name)
        sub(/\.rs$/, "", name)
        sub(/(^|\/)(mod|lib)$/, "", name)
        gsub(/\//, "::", name)
        file_of[name] = ARGV[i]
    }
}

FNR == 1 { read_imports(); text = ""; current = FILENAME; in_tests = behind = 0 }
/^#\[cfg\(test\)\]/ { in_tests = 1 }
!in_tests && behind && /[^ ]/ {
    printf "lint: %s:%d stands behind the tests of the file\n", FILENAME, FNR
    failed = 1
    behind = 0
}
!in_tests { sub(/\/\/.*/, ""); text = text " " $0 }
# The end of an item for the tests: of a module in the file, or of a line such as `mod tests;`.
in_tests && /^(}|[a-z].*;$)/ { in_tests = 0; behind = /^}/ }
END { read_imports(); check_layers(); exit failed }

# Notes each path in the text of the file that was read last.
function read_imports(    rest, path, depth, at, c) {
    gsub(/\(in crate::[a-z_:]*\)/, "", text)
    rest = text
    while (match(rest, /crate::/)) {
        rest = substr(rest, RSTART + RLENGTH)
        path = ""
        depth = 0
        for (at = 1; at <= length(rest); at++) {
            c = substr(rest, at, 1)
            if (c == "{") depth++
            if (c == "}") depth--
            if (depth < 0 || (depth == 0 && c !~ /[A-Za-z0-9_:{}]/)) break
            path = path c
            if (depth == 0 && c == "}") break
        }
        expand("", path)
    }
}

# Notes the paths of `a::{b, c::{d, e}}`.
function expand(prefix, path,    open, inner, depth, at, c, part) {
    gsub(/ /, "", path)
    open = index(path, "{")
    if (open == 0 || substr(path, length(path)) != "}") {
        note(prefix path)
        return
    }
    prefix = prefix substr(path, 1, open - 1)
    inner = substr(path, open + 1, length(path) - open - 1) ","
    depth = 0
    part = ""
    for (at = 1; at <= length(inner); at++) {
        c = substr(inner, at, 1)
        if (c == "{") depth++
        if (c == "}") depth--
        if (c == "," && depth == 0) {
            if (part != "") expand(prefix, part)
            part = ""
        } else part = part c
    }
}

# The import of this path: of the file whose module is its longest beginning.
function note(path) {
    while (!(path in file_of)) {
        if (path !~ /::/) return
        sub(/::[^:]*$/, "", path)
    }
    if (file_of[path] != current) imports[current, file_of[path]] = 1
}

function rank(file,    i, best, longest) {
    for (i = 1; i <= layers; i++)
        if (index(file, layer[i] "/") == 1 && length(layer[i]) > longest) {
            longest = length(layer[i])
            best = i
        }
    return best
}

function check_layers(    pair, ends) {
    for (pair in imports) {
        split(pair, ends, SUBSEP)
        if (rank(ends[1]) < rank(ends[2])) {
            printf "lint: %s imports %s, which is in a higher layer\n", ends[1], ends[2]
            failed = 1
        }
    }
}
