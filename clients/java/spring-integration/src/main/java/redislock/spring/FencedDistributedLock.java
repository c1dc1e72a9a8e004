package redislock.spring;

import java.time.Duration;
import org.springframework.integration.support.locks.DistributedLock;

/**
 * A lock of a {@link FencedLockRegistry}. It is bound to the calling thread and re-entrant. A thread that holds it
 * nests further calls of {@code lock} and {@code tryLock}; each of them extends the lease to at least its own time from
 * then on, and fails with {@link org.springframework.dao.CannotAcquireLockException} if the hold is lost.
 */
public interface FencedDistributedLock extends DistributedLock {
    /**
     * The fencing token of the calling thread's hold: higher than the token of every earlier grant of this key. Pass it
     * to the resource that the lock protects, which has to refuse lower ones.
     *
     * @return the token
     * @throws IllegalStateException when the calling thread does not hold the lock
     */
    long token();

    /**
     * How long the calling thread's hold is certain, see {@link redislock.Guard#validFor()}.
     *
     * @return the time; zero when the hold is lost
     * @throws IllegalStateException when the calling thread does not hold the lock
     */
    Duration validFor();
}
