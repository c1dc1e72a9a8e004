package redislock.internal.face;

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
import redislock.FencedLock;
import redislock.Lost;
import redislock.MultiGuard;
import redislock.MultiLock;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Leases;
import redislock.internal.lock.Terms;

/** Several locks as one. For a thread it acquires the members that the thread does not hold yet, so that the thread
 * holds each of them as if it had been acquired alone. */
public final class MultiFace implements MultiLock {
    /** The most keys that {@code LOCK.MACQUIRE} takes. */
    private static final int MAX_LOCKS = 1_024;

    private final List<LockFace> members;

    public MultiFace(List<FencedLock> locks) {
        if (locks.isEmpty() || locks.size() > MAX_LOCKS) {
            throw new IllegalArgumentException("a MultiLock has 1 to " + MAX_LOCKS + " locks");
        }
        Set<String> names = new HashSet<>();
        List<LockFace> faces = new ArrayList<>();
        for (FencedLock lock : locks) {
            if (!(Objects.requireNonNull(lock, "a lock of the list") instanceof LockFace face)) {
                throw new IllegalArgumentException("a MultiLock has locks of LockClient");
            }
            if (face.terms().isSession()) {
                throw new IllegalArgumentException("a MultiLock has no locks with a session");
            }
            String server = face.terms().engine().network().name();
            if (!names.add(server + " " + new String(face.key(), StandardCharsets.ISO_8859_1))) {
                throw new IllegalArgumentException(
                        server + ": " + new String(face.key(), StandardCharsets.UTF_8) + " is named twice");
            }
            faces.add(face);
        }
        members = List.copyOf(faces);
    }

    /** Acquires the members that the thread does not hold, and counts the others. */
    private boolean acquire(long end, boolean isInterruptible) throws InterruptedException {
        Blocking.check();
        List<LockFace> reentered = new ArrayList<>();
        List<LockFace> missing = new ArrayList<>();
        boolean isHeld = false;
        try {
            for (LockFace member : members) {
                (member.threads().reenter(member.key(), member.mode()) != null ? reentered : missing).add(member);
            }
            List<Terms> terms = missing.stream().map(LockFace::ofThread).toList();
            List<Hold> holds = terms.isEmpty() ? List.of() : new Rounds(terms, end, isInterruptible).run();
            if (holds != null) {
                checkStillHeld(reentered, holds);
            }
            isHeld = holds != null;
            for (int i = 0; isHeld && i < holds.size(); i++) {
                missing.get(i).threads().put(missing.get(i).key(), missing.get(i).mode(), holds.get(i));
            }
            return isHeld;
        } finally {
            if (!isHeld) {
                reentered.forEach(member -> member.threads().leave(member.key(), member.mode()));
            }
        }
    }

    /** A hold that was counted again may have been lost, or ended by its guard, while the others were awaited. */
    private static void checkStillHeld(List<LockFace> reentered, List<Hold> acquired) {
        for (LockFace member : reentered) {
            if (!member.isHeldByCurrentThread()) {
                acquired.forEach(Hold::releaseInBackground);
                ThreadHolds.Counted ended = member.threads().get(member.key(), member.mode());
                if (ended == null) {
                    throw ThreadHolds.notHeld(member.key(), "acquire again the");
                }
                throw LockFace.lost(ended.hold, ended.hold.loss());
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

    private static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    @Override
    public void lock() {
        acquireUninterruptibly(Clock.NEVER);
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        checkInterrupt();
        acquire(Clock.NEVER, true);
    }

    @Override
    public boolean tryLock() {
        return acquireUninterruptibly(Clock.now());
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        checkInterrupt();
        return acquire(Clock.plus(Clock.now(), Math.max(0, unit.toNanos(time))), true);
    }

    @Override
    public void unlock() {
        Blocking.check();
        LockFace missing = null;
        List<Hold> outermost = new ArrayList<>();
        for (LockFace member : members) {
            if (member.getHoldCount() == 0) {
                missing = member;
            }
            Hold hold = member.threads().leave(member.key(), member.mode());
            if (hold != null) {
                outermost.add(hold);
            }
        }
        Hold lost = outermost.stream().filter(hold -> hold.loss() != null).findFirst().orElse(null);
        Lost loss = lost == null ? null : lost.loss();
        Ending ending = new Ending(outermost);
        if (lost != null) {
            throw LockFace.lost(lost, loss);
        }
        if (!ending.notHeld().isEmpty()) {
            throw LockFace.lost(ending.notHeld().get(0), null);
        }
        if (missing != null) {
            throw ThreadHolds.notHeld(missing.key(), LockFace.UNLOCK);
        }
        ending.throwFailure();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }

    private Optional<MultiGuard> guard(long end, boolean isInterruptible) throws InterruptedException {
        Blocking.check();
        List<Terms> terms = members.stream().map(LockFace::terms).toList();
        List<Hold> holds = new Rounds(terms, end, isInterruptible).run();
        return Optional.ofNullable(holds).map(MultiGuardFace::new);
    }

    @Override
    public Optional<MultiGuard> tryAcquire() {
        try {
            return guard(Clock.now(), false);
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public Optional<MultiGuard> acquireWithin(Duration wait) throws InterruptedException {
        long end = Leases.end(Objects.requireNonNull(wait, "wait"));
        checkInterrupt();
        return guard(end, true);
    }

    @Override
    public MultiGuard acquire() throws InterruptedException {
        checkInterrupt();
        return guard(Clock.NEVER, true).orElseThrow();
    }
}
