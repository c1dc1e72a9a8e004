#!/bin/sh
# fetch.sh DIR: the texts of Redisson's lock scripts, one DIR/scripts/<sha1>.lua for each line of scripts.txt. Maven
# fetches the few releases that contain them; Texts.java reads the texts out of the jars. Texts that exist already are
# not fetched again. They are Redisson's: they stay in the build directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 table=$here/scripts.txt

is_complete() {
    grep -v '^#' "$table" | while read -r _ sha1 _; do
        [ -f "$dir/scripts/$sha1.lua" ] || return 1
    done
}

is_complete && exit
"$here/../../scripts/setup.sh" java
for release in $(grep -v '^#' "$table" | awk '{ print $3 }' | sort -u); do
    [ -f "$dir/jars/redisson-$release.jar" ] && continue
    echo "fetching Redisson $release"
    mvn -B -q -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="org.redisson:redisson:$release" -DoutputDirectory="$dir/jars" \
        -Dmdep.useBaseVersion=true
done
java "$here/Texts.java" "$table" "$dir/scripts" "$dir"/jars/*.jar
is_complete
