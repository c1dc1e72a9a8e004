#!/bin/sh
# test-redisson.sh [quick]: the tests of tests/redisson with each version of Redisson, one after the other. quick: all
# tests with the newest version (with fewer grants), and with the others only the contended counter.
#
# The versions: the newest, the last of 3.x, and those at or just before a change of the locks' scripts (3.13.6: no
# token, a literal publish; 3.19.0: one branch to acquire, fenced locks; 3.24.1: the publish command as an argument, the
# latch of an unlock).
set -eu
cd "$(dirname "$0")/.."
NEWEST=4.7.0
OTHERS='3.52.0 3.24.1 3.19.0 3.13.6'
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
export LOCK_MODULE LOCK_SERVER
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }

# Prints only warnings of Maven itself, and the output of the test runner.
MAVEN_OPTS="${MAVEN_OPTS:-} -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
-Dorg.slf4j.simpleLogger.log.org.apache.maven.plugin.surefire=info"
export MAVEN_OPTS

# tests VERSION OPTION...: the suite with this version.
failed=
tests() {
    version=$1
    shift
    printf '\n== Redisson %s, %s%s\n' "$version" "$("$LOCK_SERVER" --version)" "${*:+ ($*)}"
    mvn -B -ntp -Dstyle.color=never -f tests/redisson/pom.xml test -Dredisson.version="$version" "$@" ||
        failed="$failed $version"
}

if [ "${1:-}" = quick ]; then
    tests $NEWEST -Dshares.grants=5000
    for version in $OTHERS; do tests "$version" -Dtest=ContendedCounterTest; done
else
    for version in $NEWEST $OTHERS; do tests "$version"; done
fi
if [ -n "$failed" ]; then
    echo "failed with Redisson:$failed"
    exit 1
fi
