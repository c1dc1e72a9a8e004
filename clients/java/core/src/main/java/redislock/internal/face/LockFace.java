package redislock.internal.face;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import redislock.FencedLock;
import redislock.Guard;
import redislock.LockLostException;
import redislock.Lost;
import redislock.LostReason;
import redislock.Mode;
import redislock.Released;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Leases;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;
import redislock.internal.net.Requests;

/** The implementation of a lock. */
public final class LockFace implements FencedLock {
    static final String UNLOCK = "unlock";

    private final Terms terms;
    private final ThreadHolds threads;
    private final byte[] key;

    public LockFace(Terms terms, ThreadHolds threads) {
        this.terms = terms;
        this.threads = threads;
        this.key = terms.key();
    }

    Terms terms() {
        return terms;
    }

    ThreadHolds threads() {
        return threads;
    }

    @Override
    public byte[] key() {
        return key.clone();
    }

    @Override
    public Mode mode() {
        return terms.mode();
    }

    /** The terms of the calling thread. */
    Terms ofThread() {
        if (terms.isSession()) {
            throw new UnsupportedOperationException("a lock with a session is acquired by guards, not by threads");
        }
        return terms.ownedBy(threads.owner(), threads.hasOtherMode(key, mode()));
    }

    /** Counts a further hold of the thread, if it has one. It waits for the extension of a lease until {@code end}. */
    private boolean reenter(Terms wanted, long end) {
        terms.engine().checkOpen();
        Blocking.check();
        Hold hold = threads.reenter(key, mode());
        if (hold == null) {
            return false;
        }
        // As on the server, a lease is extended by a re-entry, and not shortened.
        Duration lease = wanted.fixedLease();
        if (lease == null || !hold.isFixed() || hold.validFor().compareTo(lease) >= 0) {
            return true;
        }
        boolean isHeld = false;
        try {
            isHeld = hold.renew(lease, Clock.plus(end, terms.engine().network().patience()));
        } finally {
            if (!isHeld) {
                threads.leave(key, mode());
            }
        }
        if (!isHeld) {
            throw lost(hold, hold.loss());
        }
        return true;
    }

    /** The loss that was reported; null: only the answer to a request has shown it. */
    static LockLostException lost(Hold hold, Lost loss) {
        Lost known = loss != null ? loss : Lost.of(hold.key(), hold.token(), LostReason.TAKEN);
        return new LockLostException(known.toString(), loss);
    }

    private void lock(Terms wanted) {
        if (!reenter(wanted, Clock.NEVER)) {
            threads.put(key, mode(), Waits.acquire(wanted, Clock.NEVER));
        }
    }

    private boolean tryLock(Terms wanted, Duration wait) throws InterruptedException {
        long end = Leases.end(wait);
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        return reenter(wanted, end) || held(Waits.acquireInterruptibly(wanted, end));
    }

    private boolean held(Hold hold) {
        if (hold != null) {
            threads.put(key, mode(), hold);
        }
        return hold != null;
    }

    @Override
    public void lock() {
        lock(ofThread());
    }

    @Override
    public void lock(Duration lease) {
        lock(ofThread().fixed(Leases.checked(lease)));
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        tryLock(ofThread(), null);
    }

    @Override
    public boolean tryLock() {
        Terms wanted = ofThread();
        long end = Clock.now();
        return reenter(wanted, end) || held(Waits.acquire(wanted, end));
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(ofThread(), Duration.ofNanos(Math.max(0, unit.toNanos(time))));
    }

    @Override
    public boolean tryLock(Duration wait, Duration lease) throws InterruptedException {
        return tryLock(ofThread().fixed(Leases.checked(lease)), Objects.requireNonNull(wait, "wait"));
    }

    @Override
    public void unlock() {
        Blocking.check();
        own(UNLOCK);
        Hold hold = threads.leave(key, mode());
        if (hold == null) {
            return;
        }
        Lost loss = hold.loss();
        if (loss != null) {
            hold.releaseInBackground();
            throw lost(hold, loss);
        }
        if (hold.release() == Released.NOT_HELD) {
            throw lost(hold, null);
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }

    private Hold own(String attempt) {
        return threads.own(key, mode(), attempt).hold;
    }

    @Override
    public long token() {
        return own("read the token of").token();
    }

    @Override
    public boolean isHeldByCurrentThread() {
        ThreadHolds.Counted own = threads.get(key, mode());
        return own != null && own.hold.loss() == null;
    }

    @Override
    public int getHoldCount() {
        return threads.count(key, mode());
    }

    @Override
    public boolean isLocked() {
        return !holders().isEmpty();
    }

    @Override
    public long remainTimeToLive() {
        // Of several readers the last one counts.
        List<Long> rests = holders().stream().map(each -> Reply.field(each, "pttl")).filter(Long.class::isInstance)
                .map(Long.class::cast).toList();
        return rests.isEmpty() ? -2 : rests.contains(-1L) ? -1 : Collections.max(rests);
    }

    @Override
    public boolean forceUnlock() {
        return Long.valueOf(1).equals(call("LOCK.BREAK"));
    }

    private List<?> holders() {
        Object info = call("LOCK.INFO");
        boolean isOfMode = mode().name().equalsIgnoreCase(Reply.text(Reply.field(info, "mode")));
        return isOfMode && Reply.field(info, "holders") instanceof List<?> holders ? holders : List.of();
    }

    private Object call(String command) {
        Engine engine = terms.engine();
        engine.checkOpen();
        Blocking.check();
        return Blocking.get(engine.answer(
                Requests.repeatable(engine.network(), Cmd.of(command, new Cmd.Key(key)))));
    }

    @Override
    public Duration validFor() {
        return own("read the validity of").validFor();
    }

    @Override
    public Guard guard() {
        return own("get the guard of");
    }

    @Override
    public boolean renew(Duration lease) {
        return own("renew").renew(lease);
    }

    @Override
    public Optional<Guard> tryAcquire() {
        return Optional.ofNullable(Waits.acquire(terms, Clock.now()));
    }

    @Override
    public Optional<Guard> acquireWithin(Duration wait) throws InterruptedException {
        long end = Leases.end(Objects.requireNonNull(wait, "wait"));
        return Optional.ofNullable(Waits.acquireInterruptibly(terms, end));
    }

    @Override
    public Guard acquire() throws InterruptedException {
        return Waits.acquireInterruptibly(terms, Clock.NEVER);
    }

    @Override
    public Guard acquireUninterruptibly() {
        return Waits.acquire(terms, Clock.NEVER);
    }

    @Override
    public CompletableFuture<Optional<Guard>> acquireAsync(Duration wait) {
        return Waits.async(terms, Leases.end(wait), hold -> hold);
    }

    @Override
    public String toString() {
        return "FencedLock[" + new String(key, StandardCharsets.UTF_8) + ", " + mode() + "]";
    }
}
