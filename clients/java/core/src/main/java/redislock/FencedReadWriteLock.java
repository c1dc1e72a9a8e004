package redislock;

import java.util.concurrent.locks.ReadWriteLock;

/**
 * A read-write lock on a key, in the layout of Redisson's {@code RReadWriteLock}. Readers and writers are granted in
 * the order of their requests; readers at the head of the queue together. In a cluster the key has a hash tag, or no
 * braces at all.
 *
 * <p>A thread that holds the write lock may take the read lock and then release the write lock (<i>downgrade</i>). A
 * reader may take the write lock (<i>upgrade</i>) when there is no other reader; of two readers that wait for that, the
 * second one is refused with {@link DeadlockException}.
 *
 * <p>Neither is true for guards, because each acquisition by a guard has an owner of its own: under a guard of the read
 * lock, an acquisition of the write lock waits for that guard, without an error. With {@link LockOptions#owner(String)}
 * both have the same owner, as those of a thread have.
 *
 * @param readLock  the lock of the readers
 * @param writeLock the lock of the writer
 */
public record FencedReadWriteLock(FencedLock readLock, FencedLock writeLock) implements ReadWriteLock {}
