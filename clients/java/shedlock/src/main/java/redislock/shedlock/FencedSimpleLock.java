package redislock.shedlock;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import redislock.Guard;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.Released;

/** A lock of a {@link FencedLockProvider}. */
public final class FencedSimpleLock extends AbstractSimpleLock {
    private static final Logger LOGGER = System.getLogger(FencedSimpleLock.class.getName());

    /** The shortest lease of the server's protocol in this client. */
    private static final Duration SHORTEST_LEASE = Duration.ofMillis(2);

    private final Guard guard;
    /** When the request was sent that acquired or extended the lock, by the monotonic clock in nanoseconds. */
    private final long start;

    FencedSimpleLock(LockConfiguration configuration, Guard guard, long start) {
        super(configuration);
        this.guard = guard;
        this.start = start;
    }

    /**
     * The fencing token of this grant: higher than the token of every earlier grant of this name. An extended lock
     * keeps its token.
     *
     * @return the token
     */
    public long token() {
        return guard.token();
    }

    @Override
    protected void doUnlock() {
        Duration left = lockConfiguration.getLockAtLeastFor().minusNanos(System.nanoTime() - start);
        boolean wasHeld = left.isNegative() || left.isZero() ? release() : leave(left);
        if (!wasHeld) {
            LOGGER.log(Level.WARNING, "The lock {0} was held for longer than its lockAtMostFor of {1}: "
                    + "another node may have had it meanwhile", lockConfiguration.getName(),
                    lockConfiguration.getLockAtMostFor());
        }
    }

    /** Leaves the lock to the rest of its least time; false if it was not held any more. */
    private boolean leave(Duration left) {
        try {
            return guard.leave(left.compareTo(SHORTEST_LEASE) < 0 ? SHORTEST_LEASE : left);
        } catch (LockException e) {
            // The guard is not closed before the end of the lease: the lock is to stay held for its least time.
            guard.lost().thenRun(guard::releaseAsync);
            throw e;
        }
    }

    /**
     * Releases the lock; false if it was not held any more. Without an answer the release is repeated in the background
     * until the lease is over, which may be hours away. The task has ended, so this is no error of the task.
     */
    private boolean release() {
        try {
            return guard.release() == Released.YES;
        } catch (LockConnectionException e) {
            LOGGER.log(Level.WARNING, "The lock {0} is not released yet: {1}", lockConfiguration.getName(),
                    e.getMessage());
            return true;
        }
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration newConfiguration) {
        long now = System.nanoTime();
        if (!guard.renew(newConfiguration.getLockAtMostFor())) {
            // No other method may be called after this one, so nothing else ends the guard.
            guard.releaseAsync();
            return Optional.empty();
        }
        return Optional.of(new FencedSimpleLock(newConfiguration, guard, now));
    }
}
