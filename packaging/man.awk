# Makes the Markdown of a manual page of docs/COMMANDS.md: headings one level higher, links as plain words, tables as
# lists of terms, which a terminal shows in full width.

function cells(line, n, i) {
    gsub(/\\\|/, "\001", line)
    sub(/^\| */, "", line)
    sub(/ *\|$/, "", line)
    n = split(line, cell, / *\| */)
    for (i = 1; i <= n; i++) gsub(/\001/, "|", cell[i])
    return n
}

/^\|/ {
    columns = cells($0)
    if (!table) { # the headings of the columns
        table = columns
        for (i = 2; i <= columns; i++) heading[i] = cell[i]
    } else if ($0 !~ /^\|[-:|]*$/) {
        text = (table > 3 ? heading[2] ": " : "") cell[2]
        for (i = 3; i <= columns; i++) if (cell[i] != "") text = text ". " heading[i] ": " cell[i]
        printf "%s\n\n: %s\n\n", cell[1], text
    }
    next
}
{ table = 0 }

/^    / || /^```/ { print; next }
/^# / { print "# DESCRIPTION"; next }
/^##/ { sub(/^#/, "") }
{ print }
