# Makes the Markdown of a manual page of docs/COMMANDS.md: headings one level higher, links as plain words, tables of
# two or three columns as lists of terms, which a terminal shows in full width.

function cells(line, n, i) {
    gsub(/\\\|/, "\001", line)
    sub(/^\| */, "", line)
    sub(/ *\|$/, "", line)
    n = split(line, cell, / *\| */)
    for (i = 1; i <= n; i++) gsub(/\001/, "|", cell[i])
    return n
}

# A table is kept until its number of columns is known.
/^\|/ {
    columns = cells($0)
    if (!table) { # the heading of the columns
        table = columns
        second = cell[2]
        third = cell[3]
        if (table > 3) print
    } else if (table > 3) {
        print
    } else if ($0 !~ /^\|[-:|]*$/) {
        text = cell[2]
        if (table == 3 && cell[3] != "") text = text ". " third ": " cell[3]
        printf "%s\n\n: %s\n\n", cell[1], text
    }
    next
}
{ table = 0 }

/^    / || /^```/ { print; next }
/^# / { print "# DESCRIPTION"; next }
/^##/ { sub(/^#/, "") }
{ print }
