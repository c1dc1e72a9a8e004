# Checks the links of the site: awk -v external=FILE -f links.awk PAGE.html...
# Every link within the site has a target, headings included. FILE lists links to other sites, which are not fetched.

{
    line = $0
    while (match(line, /(href|src|id)="[^"]*"/)) {
        attribute = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        value = attribute
        sub(/^[a-z]*="/, "", value)
        sub(/"$/, "", value)
        if (attribute ~ /^id=/) ids[FILENAME "#" value]
        else note(value)
    }
}

END {
    for (i = 1; i <= count; i++) {
        target = path[i]
        sub(/#.*/, "", target)
        if (!exists(target)) complain(i)
        else if (path[i] ~ /\.html#./ && !(path[i] in ids)) complain(i)
    }
    for (link in others) print link | ("sort >" external)
    printf "docs: %d links in %d pages, %d dead; %d links to other sites, not fetched: %s\n",
        count, ARGC - 1, dead, number_of_others, external
    exit dead > 0
}

function note(link) {
    gsub(/&amp;/, "\\&", link)
    if (link ~ /^(javascript|data):/) return
    if (link ~ /^[a-z]+:/) {
        if (!(link in others)) number_of_others++
        others[link]
        return
    }
    page[++count] = FILENAME
    path[count] = resolved(link)
}

# The path of the target, with its anchor.
function resolved(link,    directory) {
    if (link ~ /^#/) return FILENAME link
    directory = FILENAME
    sub(/[^\/]*$/, "", directory)
    link = directory link
    gsub(/\/\.\//, "/", link)
    while (sub(/[^\/]+\/\.\.\//, "", link)) { }
    return link
}

# A directory is shown by its index.html.
function exists(target) {
    if (!(target in known)) known[target] = system("test -f '" target "' || test -f '" target "/index.html'") == 0
    return known[target]
}

function complain(i) {
    dead++
    printf "dead link in %s: %s\n", page[i], path[i]
}
