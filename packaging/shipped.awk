# A document as a package ships it: awk -v page=PATH -v places=FILE -f shipped.awk PATH
#
# FILE has a line for each file that ships: its path in the repository, a tab, its path in the package. A link to one of
# these, or to a directory with one, is changed to lead there; any other link without a host becomes its text.

BEGIN {
    while ((getline line <places) > 0) {
        split(line, path, "\t")
        from = path[1]
        to = path[2]
        place[from] = to
        # The directories of both end alike, or the package has no such directory.
        while (sub(/\/[^\/]*$/, "", from) && sub(/\/[^\/]*$/, "", to)) if (from == to) place[from] = to
    }
}

# A block of code has no links. A link may continue on the next line of its paragraph.
/^ *```/ { flush(); print; is_code = !is_code; next }
is_code || (/^    / && is_after_blank) { flush(); print; next }
{ text = text $0 "\n"; is_after_blank = /^$/ }
END { flush() }

function flush(    done, link, words, target) {
    while (match(text, /!?\[[^][]*\]\([^()]*\)/)) {
        done = done substr(text, 1, RSTART - 1)
        link = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        words = link
        sub(/\]\([^()]*\)$/, "", words)
        target = substr(link, length(words) + 3)
        sub(/\)$/, "", target)
        if (target !~ /^[a-z]+:|^#/) target = shipped(target)
        if (target == "") sub(/^!?\[/, "", words)
        done = done words (target == "" ? "" : "](" target ")")
    }
    printf "%s%s", done, text
    text = ""
}

# The target from the place of this page, or nothing.
function shipped(target,    anchor, up) {
    anchor = target
    if (!sub(/^[^#]*#/, "#", anchor)) anchor = ""
    sub(/#.*/, "", target)
    sub(/\/$/, "", target)
    target = resolved(directory(page) target)
    if (!(target in place)) return ""
    up = directory(place[page])
    gsub(/[^\/]+\//, "../", up)
    return resolved(up place[target]) anchor
}

function directory(path) { return sub(/[^\/]*$/, "", path) ? path : "" }

# Without "name/../", as in docs/../ops. (A leading "../" stays.)
function resolved(path,    parts, n, i, kept, count) {
    n = split(path, parts, "/")
    count = 0
    for (i = 1; i <= n; i++) {
        if (parts[i] == "..") { if (count > 0 && kept[count] != "..") { count--; continue } }
        if (parts[i] == "." || parts[i] == "") continue
        kept[++count] = parts[i]
    }
    path = kept[1]
    for (i = 2; i <= count; i++) path = path "/" kept[i]
    return path
}
