#!/bin/sh
# spring-suite.sh DIRECTORY [OPTION OF MAVEN...]: runs Spring Integration's own tests of its lock registry for Redis with
# FencedLockRegistry in its place. DIRECTORY has the sources, 7.1.1 or newer: Maven Central has no jar of its tests. They
# are not changed. The adaptation, and the tests that fail with their reasons, are in clients/java/spring-suite. The module
# and the server are those of test-java.sh. For example:
#   git clone --depth 1 --branch v7.1.1 https://github.com/spring-projects/spring-integration target/spring-integration
#   scripts/spring-suite.sh target/spring-integration
set -eu
sources=$(cd "${1:?spring-suite.sh DIRECTORY [OPTION OF MAVEN...]}" && pwd)
shift
cd "$(dirname "$0")/.."
there=$PWD/target/clients/java/redis-lock-spring-suite
rm -rf "$there"
for test in leader/RedisLockRegistryLeaderInitiatorTests.java util/RedisLockRegistryTests.java \
    util/AggregatorWithRedisLocksTests.java util/AggregatorWithRedisLocksTests-context.xml; do
    package=org/springframework/integration/redis
    mkdir -p "$there/spring/$package/${test%/*}"
    cp "$sources/spring-integration-redis/src/test/java/$package/$test" "$there/spring/$package/$test"
done
[ ! -e "$sources/.git" ] || git -C "$sources" log -1 --format='Spring Integration %D %H'
exec scripts/test-java.sh -Pspring-suite -pl spring-suite -am -Dtest='*RedisLock*Tests' \
    -Dsurefire.failIfNoSpecifiedTests=false -Dmaven.javadoc.skip=true "$@"
