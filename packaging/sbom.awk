# Makes a CycloneDX 1.5 list of the crates that are linked into a file, of Cargo.lock and the output of
# `cargo tree --prefix depth --no-dedupe -f ' {p}|{l}'`. Variables: date.

function quoted(text) { gsub(/[\\"]/, "\\\\&", text); return "\"" text "\"" }
function sorted(list, n, i, j, swap) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap }
}
function component(id, indent,   name, number) {
    split(id, part, "@")
    printf "%s{\n%s  \"type\": \"library\",\n%s  \"bom-ref\": \"pkg:cargo/%s\",\n", indent, indent, indent, id
    printf "%s  \"name\": \"%s\",\n%s  \"version\": \"%s\",\n", indent, part[1], indent, part[2]
    if (id in sum) printf "%s  \"hashes\": [{ \"alg\": \"SHA-256\", \"content\": \"%s\" }],\n", indent, sum[id]
    printf "%s  \"licenses\": [{ \"expression\": %s }],\n", indent, quoted(licence[id])
    printf "%s  \"purl\": \"pkg:cargo/%s\"\n%s}", indent, id, indent
}

# Cargo.lock
FNR == NR {
    if (/^name = /) name = $3
    if (/^version = /) id = name "@" $3
    if (/^checksum = /) { gsub(/"/, "", id); gsub(/"/, "", $3); sum[id] = $3 }
    next
}

# The tree: "2 log v0.4.35|MIT OR Apache-2.0"
{
    depth = $1
    sub(/ \(.*\)\|/, "|")
    terms = $0
    sub(/^[^|]*\|/, "", terms)
    gsub(/\//, " OR ", terms)
    sub(/\|.*/, "")
    id = $2 "@" substr($3, 2)
    at[depth] = id
    if (depth == 0) root = id
    if (!(id in licence)) { licence[id] = terms; ids[++count] = id }
    if (depth > 0 && !((at[depth - 1], id) in edge)) { edge[at[depth - 1], id] = 1; below[at[depth - 1]] = below[at[depth - 1]] " " id }
}

END {
    sorted(ids, count)
    printf "{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n  \"metadata\": {\n"
    printf "    \"timestamp\": \"%s\",\n    \"component\":\n", date
    component(root, "    ")
    printf "\n  },\n  \"components\": [\n"
    first = 1
    for (i = 1; i <= count; i++) if (ids[i] != root) { if (!first) print ","; first = 0; component(ids[i], "    ") }
    printf "\n  ],\n  \"dependencies\": [\n"
    for (i = 1; i <= count; i++) {
        printf "    { \"ref\": \"pkg:cargo/%s\", \"dependsOn\": [", ids[i]
        n = split(below[ids[i]], list, " ")
        sorted(list, n)
        for (j = 1; j <= n; j++) printf "%s\"pkg:cargo/%s\"", (j > 1 ? ", " : ""), list[j]
        printf "] }%s\n", (i < count ? "," : "")
    }
    print "  ]\n}"
}
