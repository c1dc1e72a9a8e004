# Prints the targets of the Makefile that have a description (##): awk -v all=1 -f help.awk Makefile
#
# The daily ones, or all of them in groups. A target that no pattern below names is in the last group.

BEGIN {
    split("build run demo test test-core test-server check fmt client docs", order)
    for (i in order) is_daily[order[i]]
    split("Daily,Tests,Faults and memory,Packages and documents,Measurements,Other", groups, ",")
}

/^[a-z-]+:.*## / {
    name = $0
    sub(/:.*/, "", name)
    text[name] = $0
    sub(/.*## /, "", text[name])
    group = group_of(name)
    names[group] = names[group] " " name
}

END {
    if (!all) {
        for (i = 1; i in order; i++) show(order[i])
        print "  make help-all          all targets, in groups"
        exit
    }
    for (i = 1; i in groups; i++) {
        printf "%s%s\n", (i > 1 ? "\n" : ""), groups[i]
        count = split(names[groups[i]], of_group, " ")
        for (j = 1; j <= count; j++) show(of_group[j])
    }
}

function group_of(name) {
    if (name in is_daily) return "Daily"
    if (name ~ /^bench/) return "Measurements"
    if (name ~ /^(faults|fault-points|long-run|power-loss|test-histories|mutants|asan|valgrind|leaks|fuzz|trial)/)
        return "Faults and memory"
    if (name ~ /^(install|packages|deb|test-deb|tarball|test-tarball|image|test-image|release|man)/)
        return "Packages and documents"
    if (name ~ /^(test|explore|redisson|msrv|deny|lint|fresh)/) return "Tests"
    return "Other"
}

# A line of at most 110 columns; what is longer continues below.
function show(name,    count, word, i, line) {
    count = split(text[name], word, " ")
    line = sprintf("  make %-17s", name)
    for (i = 1; i <= count; i++) {
        if (length(line) + length(word[i]) > 109) {
            print line
            line = sprintf("%24s", "")
        }
        line = line " " word[i]
    }
    print line
}
