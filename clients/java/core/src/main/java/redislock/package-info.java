/**
 * Locks, read-write locks, semaphores and latches of the redis-lock module.
 *
 * <p>A {@link redislock.LockClient} belongs to a server, to a cluster, or to the primary that sentinels name. Its
 * {@link redislock.FencedLock} is held in one of two ways: by a thread, with the methods of {@link
 * java.util.concurrent.locks.Lock}, re-entrantly; or by a {@link redislock.Guard}, which any thread and callbacks may
 * use. Every hold has a fencing token, is renewed in the background, and reports when it is lost.
 *
 * <pre>{@code
 * try (LockClient client = LockClient.create("redis://127.0.0.1:6379")) {
 *     FencedLock lock = client.lock("invoices:42");
 *     lock.lock();
 *     try {
 *         store.write(lock.token(), invoice);
 *     } finally {
 *         lock.unlock();
 *     }
 * }
 * }</pre>
 *
 * <p>A lease is counted from before its request was sent: the client's end of the lease is never later than the
 * server's, as long as their clocks run at the same rate. Requests carry {@code ONCE} and an owner, so repeating one
 * after a broken connection never counts a second hold.
 */
@NullMarked
package redislock;

import org.jspecify.annotations.NullMarked;
