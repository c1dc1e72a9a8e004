/**
 * Real servers for the tests of the client modules: a server with the lock module, replicas, sentinels, clusters, TLS,
 * users, and a proxy that loses and holds back what it carries.
 *
 * <p>Each server runs on a loopback port and in a directory of its own. It ends with {@code close()}, with this
 * process, and on Linux also when this process is killed. The environment variable {@code LOCK_SERVER} names the
 * server's binary (default {@code redis-server}), {@code LOCK_MODULE} the lock module (default {@code
 * target/release/libredis_lock.so} of the repository).
 */
package redislock.testing;
