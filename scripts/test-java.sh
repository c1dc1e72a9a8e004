#!/bin/sh
# test-java.sh [OPTION OF MAVEN...]: the tests of the jars of clients/java, on real servers. The module is LOCK_MODULE,
# by default that of `make build`. Without -Dtest=... a part of the tests is run once more with the oldest Lettuce, and
# those of the starter with the oldest Spring Boot. The test of virtual threads needs Java 21: if Maven's is older, it is run once more with the newest one of /usr/lib/jvm.
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

# again PACKAGE TESTS [OPTION OF MAVEN...]: these tests of a package.
again() {
    package=$1 tests=$2
    shift 2
    mvn -B -ntp -Dstyle.color=never -f clients/java -pl "$package" -am test -Dtest="$tests" \
        -Dsurefire.failIfNoSpecifiedTests=false "$@"
}

# That of Spring Boot 3.5. Any other one can be tested in the same way; RedissonTest needs the newest.
OLDEST_LETTUCE=6.6.0.RELEASE
OLDEST_BOOT=3.5.7
VIRTUAL=VirtualThreadsTest
case "$*" in
*$VIRTUAL*) ;;
*-Dtest=*) exit ;; # other tests
*)
    echo "with Lettuce $OLDEST_LETTUCE:"
    again core 'ErrorTest,FamilyTest,GuardTest,LockFaceTest,MemoryServerTest,ResumeTest,WaitTest,DeploymentTest#tls*+*password*' \
        -Dtested.lettuce.version=$OLDEST_LETTUCE
    echo "with Spring Boot $OLDEST_BOOT:"
    again spring-boot-starter RedisLockAutoConfigurationTest,ShutdownTest -Dtested.boot.version=$OLDEST_BOOT
    ;;
esac
# The Java version in a line like `Java version: 17.0.15, ...`, or in the file `release` of a JDK.
major() { sed -n 's/^\(Java version: \|JAVA_VERSION="\)\([0-9]*\).*/\2/p' "$@"; }
[ "$(mvn --version | major)" -lt 21 ] || exit 0 # the run above had it
newest=20
for home in /usr/lib/jvm/*; do
    [ -x "$home/bin/java" ] && [ -f "$home/release" ] || continue
    version=$(major "$home/release")
    [ "${version:-0}" -le "$newest" ] || { newest=$version && newest_home=$home; }
done
[ -n "${newest_home:-}" ] || { echo "$VIRTUAL was skipped: it needs Java 21 or newer, and /usr/lib/jvm has none" && exit; }
echo "$VIRTUAL with Java $newest ($newest_home):"
again core $VIRTUAL -Djvm="$newest_home/bin/java"
