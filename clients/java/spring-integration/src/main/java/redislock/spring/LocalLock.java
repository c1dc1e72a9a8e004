package redislock.spring;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** A fair re-entrant lock in this process. A thread that has ended does not keep it, unlike a {@link ReentrantLock}. */
final class LocalLock {
    /** How often a thread that waits looks whether the owner has ended. */
    private static final long LOOK = TimeUnit.MILLISECONDS.toNanos(500);

    /** Another one takes its place when its owner has ended: nothing unlocks it any more. */
    private final AtomicReference<Owned> present = new AtomicReference<>(new Owned());
    /** Those that wait queue here, and the first of them at the present lock, so that each look keeps the order. */
    private final ReentrantLock line = new ReentrantLock(true);

    /** A lock that tells whether its owner has ended. */
    private static final class Owned extends ReentrantLock {
        private static final long serialVersionUID = 1;

        boolean isLeft() {
            @Nullable Thread owner = getOwner();
            // Read again: it may have unlocked this one before it has ended.
            return owner != null && !owner.isAlive() && owner == getOwner();
        }
    }

    private Owned present() {
        return present.updateAndGet(lock -> lock.isLeft() ? new Owned() : lock);
    }

    /** Waits without a limit; an interruption does not end the wait. */
    void lock() {
        boolean isInterrupted = false;
        boolean isLocked = false;
        while (!isLocked) {
            try {
                isLocked = tryLock(Long.MAX_VALUE);
            } catch (InterruptedException later) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    boolean tryLock() {
        return present().tryLock();
    }

    boolean tryLock(long nanos) throws InterruptedException {
        long end = System.nanoTime() + Math.min(nanos, Long.MAX_VALUE / 2);
        boolean isNested = isHeldByCurrentThread();
        if (!isNested && !line.tryLock(nanos, TimeUnit.NANOSECONDS)) {
            return false;
        }
        try {
            long left;
            do {
                left = end - System.nanoTime();
                if (present().tryLock(Math.min(left, LOOK), TimeUnit.NANOSECONDS)) {
                    return true;
                }
            } while (left > 0);
            return false;
        } finally {
            if (!isNested) {
                line.unlock();
            }
        }
    }

    void unlock() {
        present.get().unlock();
    }

    boolean isLocked() {
        return present.get().isLocked();
    }

    boolean isHeldByCurrentThread() {
        return present.get().isHeldByCurrentThread();
    }

    int getHoldCount() {
        return present.get().getHoldCount();
    }
}
