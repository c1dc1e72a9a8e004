package redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * Several locks that are acquired together or not at all.
 *
 * <p>If all the locks of one client have the same mode, lease, kind of lease and owner (in a cluster also the same
 * slot), they are acquired in one request, {@code LOCK.MACQUIRE}, which holds nothing while it waits. Otherwise each of
 * them is a request of its own. The requests are sent in the order of servers and keys, whatever the caller's order.
 * From the first grant on, a <i>round</i> lasts 1.5 s for each lock: if it is not complete by then, all its locks are
 * released, because other owners may want some of them.
 *
 * <p>As with {@link FencedLock}, a hold belongs to the calling thread and is re-entrant, or belongs to a guard.
 */
public interface MultiLock extends Lock {
    /**
     * Waits for all the locks without a limit; not ended by an interruption.
     *
     * @throws LockException     when a server refuses
     * @throws LockLostException when this thread has lost a hold that it would re-enter, also while it waits for the
     *     other locks
     */
    @Override
    void lock();

    @Override
    void lockInterruptibly() throws InterruptedException;

    /**
     * Takes all the locks if they are free.
     *
     * @return false when one of them is not
     */
    @Override
    boolean tryLock();

    @Override
    boolean tryLock(long time, TimeUnit unit) throws InterruptedException;

    /**
     * Ends a hold of this thread; the outermost one releases all the locks at the same time, and waits for the answers
     * as {@link FencedLock#unlock()}. If this thread does not hold one of the locks any more, its holds of the others
     * end nevertheless.
     *
     * @throws IllegalMonitorStateException when this thread does not hold one of the locks
     * @throws LockLostException            when one of the locks was lost meanwhile
     * @throws LockConnectionException      when a server did not answer; the release goes on in the background
     * @throws LockException                when a server refused
     */
    @Override
    void unlock();

    /**
     * Not supported.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    Condition newCondition();

    /**
     * Takes all the locks if they are free.
     *
     * @return nothing when one of them is not
     * @throws LockException when a server cannot be reached, does not answer in time, or refuses; nothing is held
     */
    Optional<MultiGuard> tryAcquire();

    /**
     * Waits for all the locks for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return nothing when they were not all granted in time
     * @throws InterruptedException when this thread is interrupted; nothing is held
     * @throws LockException        when a server refuses, or could not be reached at the end of the wait
     */
    Optional<MultiGuard> acquireWithin(Duration wait) throws InterruptedException;

    /**
     * Waits for all the locks without a limit.
     *
     * @return the guard of all of them
     * @throws InterruptedException when this thread is interrupted; nothing is held
     * @throws LockException        when a server refuses
     */
    MultiGuard acquire() throws InterruptedException;
}
