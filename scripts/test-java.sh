#!/bin/sh
# test-java.sh [OPTION OF MAVEN...]: the tests of the jars of clients/java, on real servers. The module is LOCK_MODULE,
# by default that of `make build`.
set -eu
cd "$(dirname "$0")/.."
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
export LOCK_MODULE LOCK_SERVER
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }

# Prints only warnings of Maven itself, and the output of the test runner.
MAVEN_OPTS="${MAVEN_OPTS:-} -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
-Dorg.slf4j.simpleLogger.log.org.apache.maven.plugin.surefire=info"
export MAVEN_OPTS
mvn -B -ntp -Dstyle.color=never -f clients/java verify "$@"
