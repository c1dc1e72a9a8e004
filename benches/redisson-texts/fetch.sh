#!/bin/sh
# fetch.sh DIR: the texts of Redisson's lock scripts, one DIR/scripts/<sha1>.lua for each line of scripts.txt. Maven
# fetches the release that contains them; Texts.java reads the texts out of the jar. Texts that exist already are not
# fetched again. They are Redisson's: they stay in the build directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 table=$here/scripts.txt
RELEASE=4.7.0

is_complete() {
    grep -v '^#' "$table" | while read -r _ sha1; do
        [ -f "$dir/scripts/$sha1.lua" ] || return 1
    done
}

is_complete && exit
"$here/../../scripts/setup.sh" java
jar=$dir/jars/redisson-$RELEASE.jar
if [ ! -f "$jar" ]; then
    echo "fetching Redisson $RELEASE"
    mvn -B -q -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="org.redisson:redisson:$RELEASE" -DoutputDirectory="$dir/jars" \
        -Dmdep.useBaseVersion=true
fi
java "$here/Texts.java" "$table" "$dir/scripts" "$jar"
is_complete
