# Copies documents into the book: awk -v book=DIR -v facts=DIR -f pages.awk docs/COMMANDS.md docs/COMMANDS.md FILE...
#
# Each section of docs/COMMANDS.md becomes a page. The page of a command gets the two tables that src/commands/pages.rs
# makes of it. The description of each option, its row of the table of options and its details, goes behind the table of
# arguments, with a heading of its own: the search weighs headings most, so a search for an option leads to it. In all
# documents, links to headings of docs/COMMANDS.md lead to the page with that heading; other links stay.
# DIR/../sections lists the new pages, DIR/../files the linked files that are no documents.

BEGIN { commands = "docs/COMMANDS.md"; sections = book "/../sections"; files = book "/../files" }

FNR == 1 { reading++; in_code = 0; page = book "/" FILENAME; file = "COMMANDS" }
/^ *```/ { in_code = !in_code }
{ is_prose = !in_code && !/^    / && !/^ *```/ }

# The first reading of docs/COMMANDS.md: the page of each heading.
reading == 1 {
    if (is_prose && /^## /) file = page_name($0)
    if (is_prose && /^##/) page_of[anchor($0)] = file
    next
}

is_prose { note_files($0); $0 = with_links($0) }

FILENAME == commands && is_prose && /^## / {
    finish()
    file = page_name($0)
    page = book "/docs/" file ".md"
    is_command = exists(facts "/" file ".facts")
    printf "  - [%s](docs/%s.md)\n", substr($0, 4), file >sections
}
# The headings of a section rise by one level.
FILENAME == commands && file != "COMMANDS" && is_prose && /^##/ { sub(/^#/, ""); had_heading = !/^# / }

# The table of options: each option becomes a heading with the row as its text. Other rows stay, with the lines before
# them.
FILENAME == commands && is_command && /^\*\*[A-Z]/ {
    if (in_options && has_others) print "" >page
    in_options = /^\*\*Options/
    has_others = 0
    held = ""
}
FILENAME == commands && is_command && in_options {
    if (/^\| `[A-Z]/) { add_option($0); next }
    if (/^(\*\*|\| Option |\|-|$)/) { held = held $0 "\n"; next }
    printf "%s", held >page
    held = ""
    has_others = 1
}

# A detail of an option: "- `ONCE`: ..." to the next item or the end of the list.
FILENAME == commands && is_command && !had_heading {
    if (/^- /) {
        split($0, part, "`")
        in_option = /^- `[A-Z]/ ? row_of[part[2]] : 0
        if (in_option) {
            sub(/^- /, "  ")
            texts[in_option] = texts[in_option] "\n"
        }
    } else if (!/^  [^ ]/) in_option = 0
    if (in_option) { texts[in_option] = texts[in_option] substr($0, 3) "\n"; next }
}

{ print >page }

# The facts follow the syntax, which is the first indented block.
FILENAME == commands && is_command && !has_facts {
    if (/^    /) in_syntax = 1
    else if (in_syntax) { copy(facts "/" file ".facts"); has_facts = 1 }
}

END { finish() }

# The end of a section of docs/COMMANDS.md.
function finish() {
    if (file == "COMMANDS" && reading == 2) {
        print "\nA page for each command:\n" >page
        copy(facts "/list")
    }
    if (is_command && exists(facts "/" file ".arguments")) {
        print "\n## Arguments\n" >page
        copy(facts "/" file ".arguments")
        for (row = 1; row <= rows; row++) printf "\n### %s\n\n%s", titles[row], texts[row] >page
    }
    if (is_command) print "\n[Errors](errors.md) has the errors of all commands." >page
    close(page)
    is_command = has_facts = in_syntax = in_options = in_option = had_heading = rows = 0
    split("", row_of)
}

# A row of a table of options: "| `EX seconds`, `PX milliseconds` | meaning | units |".
function add_option(line,    cell, code, word, count, i) {
    gsub(/\\\|/, "\001", line)
    split(line, cell, / *\| */)
    titles[++rows] = ""
    count = split(cell[2], code, "`")
    for (i = 2; i <= count; i += 2) {
        word = code[i]
        sub(/ .*/, "", word)
        row_of[word] = rows
        titles[rows] = titles[rows] (i > 2 ? ", " : "") word
    }
    texts[rows] = cell[2] ": " cell[3] "." (cell[4] != "" ? " Unit, bounds: " cell[4] "." : "") "\n"
    gsub(/\001/, "|", texts[rows])
}

# "## LOCK.ACQUIRE" is on the page lock-acquire.
function page_name(heading) {
    heading = tolower(substr(heading, 4))
    gsub(/[. ]/, "-", heading)
    gsub(/[^-a-z]/, "", heading)
    return heading
}

# As a forge and mdBook name a heading.
function anchor(heading) {
    sub(/^#+ */, "", heading)
    heading = tolower(heading)
    gsub(/ /, "-", heading)
    gsub(/[^-_a-z0-9]/, "", heading)
    return heading
}

# The line, with links to headings of docs/COMMANDS.md changed to the pages that have them.
function with_links(line,    done, target, name) {
    while (match(line, /\]\([^)#]*#[^)]*\)/)) {
        done = done substr(line, 1, RSTART + 1)
        target = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH - 1)
        name = target
        sub(/.*#/, "", name)
        if (name in page_of && (FILENAME == commands ? target ~ /^#/ : target ~ /COMMANDS\.md#/)) {
            sub(/(COMMANDS\.md)?#.*/, page_of[name] ".md#" name, target)
        } else if (FILENAME == commands && target ~ /^#/) {
            target = "COMMANDS.md" target
        }
        done = done target
    }
    return done line
}

# Notes the targets that are no documents, as paths from the top of the repository.
function note_files(line,    target, directory) {
    directory = FILENAME
    if (!sub(/\/[^\/]*$/, "/", directory)) directory = ""
    while (match(line, /\]\([^)]*\)/)) {
        target = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
        if (target ~ /:\/\/|^#|\.md(#|$)/) continue
        target = directory target
        while (sub(/[^\/]+\/\.\.\//, "", target)) { }
        print target >files
    }
}

function exists(path,    line, found) {
    found = (getline line <path) > 0
    close(path)
    return found
}

function copy(path,    line) {
    while ((getline line <path) > 0) print line >page
    close(path)
}
