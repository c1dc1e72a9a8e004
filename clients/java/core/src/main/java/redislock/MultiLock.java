package redislock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;

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
public final class MultiLock implements Lock {
    /** The most keys that {@code LOCK.MACQUIRE} takes. */
    private static final int MAX_LOCKS = 1_024;

    private final List<FencedLock> members;

    MultiLock(List<FencedLock> locks) {
        if (locks.isEmpty() || locks.size() > MAX_LOCKS) {
            throw new IllegalArgumentException("a MultiLock has 1 to " + MAX_LOCKS + " locks");
        }
        Set<String> names = new HashSet<>();
        for (FencedLock lock : locks) {
            Objects.requireNonNull(lock, "a lock of the list");
            if (lock.terms().isSession()) {
                throw new IllegalArgumentException("a MultiLock has no locks with a session");
            }
            if (lock.terms().hasNote()) {
                throw new IllegalArgumentException("a MultiLock has no locks with a note");
            }
            String server = lock.terms().engine().network().name();
            if (!names.add(server + " " + new String(lock.key(), StandardCharsets.ISO_8859_1))) {
                throw new IllegalArgumentException(
                        server + ": " + new String(lock.key(), StandardCharsets.UTF_8) + " is named twice");
            }
        }
        members = List.copyOf(locks);
    }

    /** Acquires the members that the thread does not hold, and counts the others. */
    private boolean acquire(long end, boolean isInterruptible) throws InterruptedException {
        Blocking.check();
        List<FencedLock> reentered = new ArrayList<>();
        List<FencedLock> missing = new ArrayList<>();
        boolean isHeld = false;
        try {
            for (FencedLock member : members) {
                (member.threads().reenter() != null ? reentered : missing).add(member);
            }
            List<Terms> terms = missing.stream().map(FencedLock::ofThread).toList();
            List<Hold> holds = terms.isEmpty() ? List.of() : new Rounds(terms, end, isInterruptible).run();
            if (holds != null) {
                checkStillHeld(reentered, holds);
            }
            isHeld = holds != null;
            for (int i = 0; isHeld && i < holds.size(); i++) {
                missing.get(i).threads().put(holds.get(i));
            }
            return isHeld;
        } finally {
            if (!isHeld) {
                reentered.forEach(member -> member.threads().leave());
            }
        }
    }

    /** A hold that was counted again may have been lost, or ended by its guard, while the others were awaited. */
    private static void checkStillHeld(List<FencedLock> reentered, List<Hold> acquired) {
        for (FencedLock member : reentered) {
            if (!member.isHeldByCurrentThread()) {
                acquired.forEach(Hold::releaseInBackground);
                Hold ended = member.threads().own("acquire again the");
                throw FencedLock.lost(ended, ended.loss());
            }
        }
    }

    private boolean acquireUninterruptibly(long end) {
        try {
            return acquire(end, false);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * Waits for all the locks without a limit; not ended by an interruption.
     *
     * @throws LockException     when a server cannot be reached at first, or refuses
     * @throws LockLostException when this thread has lost a hold that it would re-enter, also while it waits for the
     *     other locks
     */
    @Override
    public void lock() {
        acquireUninterruptibly(Clock.NEVER);
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        Blocking.checkInterruptibly();
        acquire(Clock.NEVER, true);
    }

    /**
     * Takes all the locks if they are free.
     *
     * @return false when one of them is not
     */
    @Override
    public boolean tryLock() {
        return acquireUninterruptibly(Clock.now());
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        Blocking.checkInterruptibly();
        return acquire(Clock.plus(Clock.now(), Math.max(0, unit.toNanos(time))), true);
    }

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
    public void unlock() {
        Blocking.check();
        FencedLock missing = null;
        List<Hold> outermost = new ArrayList<>();
        for (FencedLock member : members) {
            if (member.getHoldCount() == 0) {
                missing = member;
            }
            Hold hold = member.threads().leave();
            if (hold != null) {
                outermost.add(hold);
            }
        }
        Hold lost = outermost.stream().filter(hold -> hold.loss() != null).findFirst().orElse(null);
        Lost loss = lost == null ? null : lost.loss();
        Ending ending = new Ending(outermost);
        if (lost != null) {
            throw FencedLock.lost(lost, loss);
        }
        if (!ending.notHeld().isEmpty()) {
            throw FencedLock.lost(ending.notHeld().get(0), null);
        }
        if (missing != null) {
            throw missing.threads().notHeld(FencedLock.UNLOCK);
        }
        ending.throwFailure();
    }

    /**
     * Not supported.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }

    private Optional<MultiGuard> guard(long end, boolean isInterruptible) throws InterruptedException {
        Blocking.check();
        List<Terms> terms = members.stream().map(FencedLock::terms).toList();
        List<Hold> holds = new Rounds(terms, end, isInterruptible).run();
        return Optional.ofNullable(holds).map(MultiGuard::new);
    }

    /**
     * Takes all the locks if they are free.
     *
     * @return nothing when one of them is not
     * @throws LockException when a server cannot be reached, does not answer in time, or refuses; nothing is held
     */
    public Optional<MultiGuard> tryAcquire() {
        try {
            return guard(Clock.now(), false);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * Waits for all the locks for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return nothing when they were not all granted in time
     * @throws InterruptedException when this thread is interrupted; nothing is held
     * @throws LockException        when a server refuses, or could not be reached at first or at the end of the wait
     */
    public Optional<MultiGuard> acquireWithin(Duration wait) throws InterruptedException {
        long end = Clock.end(Objects.requireNonNull(wait, "wait"));
        Blocking.checkInterruptibly();
        return guard(end, true);
    }

    /**
     * Waits for all the locks without a limit.
     *
     * @return the guard of all of them
     * @throws InterruptedException when this thread is interrupted; nothing is held
     * @throws LockException        when a server cannot be reached at first, or refuses
     */
    public MultiGuard acquire() throws InterruptedException {
        Blocking.checkInterruptibly();
        return guard(Clock.NEVER, true).orElseThrow();
    }
}
