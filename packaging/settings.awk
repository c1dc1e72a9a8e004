# Makes the Markdown of a manual page of redis.conf.example: each setting is a term, the comment above it its text.

function flush() {
    if (text != "") printf "%s\n\n", text
    text = ""
}

BEGIN { print "# DESCRIPTION\n" }
/^#/ {
    sub(/^# ?/, "")
    sub(/^Range: /, "\nRange: ")
    gsub(/_/, "\\_")
    text = text (text == "" ? "" : "\n") $0
    # A directive of the server that is switched off by a comment sign.
    if (/^aclfile /) { sub(/\n?aclfile .*/, "", text); term = $0 } else next
}
/^$/ { if (!heading) { flush(); heading = 1; print "# SETTINGS\n" } next }
{
    if (term == "") term = $0
    gsub(/\n/, "\n  ", text)
    gsub(/\n  \n/, "\n\n", text)
    printf "`%s`\n\n: %s\n\n", term, text
    term = text = ""
}
