package redislock.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import org.jspecify.annotations.Nullable;
import org.springframework.dao.CannotAcquireLockException;
import redislock.FencedLock;
import redislock.Guard;
import redislock.LockException;
import redislock.LockLostException;
import redislock.Released;

/**
 * A lock of a registry: a local lock that counts the holds of a thread, and the guard of the server's lock, which is
 * acquired by the outermost hold and released with it. Of the threads of one registry only the one with the local lock
 * waits at the server. The local lock is fair, as the server's queue is.
 */
final class RegistryLock implements FencedDistributedLock {
    private final FencedLockRegistry registry;
    private final String key;
    private final String path;
    private final LocalLock local = new LocalLock();
    private volatile long lockedAt = System.currentTimeMillis();

    /** Present while the lock is held. Written by the thread that has the local lock. */
    private volatile @Nullable Guard guard;

    RegistryLock(FencedLockRegistry registry, String key) {
        this.registry = registry;
        this.key = key;
        this.path = registry.pathOf(key);
    }

    @Override
    public void lock() {
        lock(registry.expireAfter());
    }

    @Override
    public void lock(Duration ttl) {
        local.lock();
        enter(ttl, lock -> Optional.of(lock.acquireUninterruptibly()));
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        local.tryLock(Long.MAX_VALUE);
        enter(registry.expireAfter(), lock -> Optional.of(lock.acquire()));
    }

    @Override
    public boolean tryLock() {
        return local.tryLock() && enter(registry.expireAfter(), FencedLock::tryAcquire);
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(unit.toNanos(time), registry.expireAfter());
    }

    @Override
    public boolean tryLock(Duration waitTime, Duration ttl) throws InterruptedException {
        return tryLock(TimeUnit.NANOSECONDS.convert(waitTime), ttl);
    }

    private boolean tryLock(long nanos, Duration ttl) throws InterruptedException {
        long start = System.nanoTime();
        if (!local.tryLock(nanos)) {
            return false;
        }
        long left = Math.max(0, nanos - (System.nanoTime() - start));
        return enter(ttl, lock -> left > 0 ? lock.acquireWithin(Duration.ofNanos(left)) : lock.tryAcquire());
    }

    @Override
    public void unlock() {
        requireHeld();
        if (local.getHoldCount() > 1) {
            local.unlock();
            return;
        }
        Guard held = guard;
        guard = null;
        try {
            if (held.release() == Released.NOT_HELD) {
                throw new ConcurrentModificationException("Lock was released in the store due to expiration. "
                        + "The integrity of data protected by this lock may have been compromised.");
            }
        } finally {
            local.unlock();
        }
    }

    @Override
    public long token() {
        requireHeld();
        return guard.token();
    }

    @Override
    public Duration validFor() {
        requireHeld();
        return guard.validFor();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("Conditions are not supported");
    }

    @Override
    public String toString() {
        return "FencedDistributedLock [path=" + path + ", held=" + isHeldInThisProcess() + "]";
    }

    /** The time of the last acquisition, at first of the creation, in milliseconds of the wall clock. */
    long lockedAt() {
        return lockedAt;
    }

    boolean isHeldInThisProcess() {
        return local.isLocked();
    }

    /** Sets the lease of the present hold; false if there is none, or it is lost. */
    boolean renew(Duration ttl) {
        Guard held = guard;
        return held != null && held.renew(ttl);
    }

    /** A way to acquire the server's lock. */
    private interface Acquisition<E extends Exception> {
        Optional<Guard> from(FencedLock lock) throws E;
    }

    /**
     * Acquires the server's lock for the thread that has just locked the local one, which a failure unlocks.
     */
    private <E extends Exception> boolean enter(Duration ttl, Acquisition<E> acquisition) throws E {
        boolean isEntered = false;
        try {
            if (local.getHoldCount() > 1) {
                reenter(ttl);
                isEntered = true;
            } else {
                registry.requireKept(this, key);
                leaveToItsLease(guard);
                Optional<Guard> granted = acquisition.from(registry.clientLock(path, ttl));
                isEntered = granted.isPresent();
                guard = granted.orElse(null);
            }
            if (isEntered) {
                lockedAt = System.currentTimeMillis();
            }
            return isEntered;
        } catch (LockException | LockLostException | IllegalStateException e) {
            throw new CannotAcquireLockException("Failed to lock mutex at " + path, e);
        } finally {
            if (!isEntered) {
                local.unlock();
            }
        }
    }

    /** The hold of a thread that has ended without unlock(): it is renewed no longer, and ends with its lease. */
    private static void leaveToItsLease(@Nullable Guard left) {
        if (left != null && left.validFor().toMillis() > 1) {
            left.leave(left.validFor());
        }
    }

    /**
     * Extends the lease for a nested hold, and never shortens it. A lost hold is not acquired anew: the section around
     * this one would work under another grant than its own.
     */
    private void reenter(Duration ttl) {
        boolean isLost = guard.lostReason() != null;
        if (!isLost && guard.validFor().compareTo(ttl) < 0) {
            isLost = !guard.renew(ttl);
        }
        if (isLost) {
            throw new LockLostException("the lock " + path + " was lost before this thread has locked it again", null);
        }
    }

    private void requireHeld() {
        if (!local.isHeldByCurrentThread()) {
            throw new IllegalStateException("You do not own lock at " + path);
        }
    }
}
