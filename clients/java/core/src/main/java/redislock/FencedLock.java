package redislock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;

/**
 * A lock on a key of a server, held by a thread or by a {@link Guard}. The server grants it to the waiters of both in
 * the order of their requests.
 *
 * <p>A hold by the methods of {@link Lock} is bound to the calling thread. Its owner is {@code uuid:threadId}, with one
 * UUID for each {@link LockClient}: the form of Redisson's {@code RLock}. It is re-entrant: the holds of a thread are
 * counted in this process, also across several objects for one key of one client. A re-entry after a loss is refused
 * with {@link LockLostException}. Only its thread unlocks it: the lock of a thread that has ended without
 * {@link #unlock()} is renewed until the client is closed, unless its lease is fixed. This is logged once, as a warning
 * of the logger {@code redislock}.
 *
 * <p>A hold by a {@link Guard} is bound to no thread. Each acquisition has an owner of its own, so two acquisitions
 * exclude each other, also in one thread.
 *
 * <p>Every method that sends a request throws {@link LockClosedException} when the client is closed, and {@link
 * IllegalStateException} on an event loop of Lettuce, which must not be blocked. A negative wait is an {@link
 * IllegalArgumentException}, except for {@link #tryLock(long, TimeUnit)}. With {@link LockOptions#session()} the
 * methods that bind a hold to the thread throw {@link UnsupportedOperationException}.
 */
public final class FencedLock implements Lock {
    static final String UNLOCK = "unlock";

    private final Terms terms;
    private final ThreadHolds threads;
    private final byte[] key;

    /** {@code held} has the holds of the client's threads. */
    FencedLock(Terms terms, Map<ThreadHolds.Name, ThreadHolds.Counted> held) {
        this.terms = terms;
        this.threads = new ThreadHolds(held, terms);
        this.key = terms.key();
    }

    Terms terms() {
        return terms;
    }

    ThreadHolds threads() {
        return threads;
    }

    /**
     * The key.
     *
     * @return a copy
     */
    public byte[] key() {
        return key.clone();
    }

    /**
     * The mode.
     *
     * @return {@link Mode#EXCLUSIVE}, or the mode of one side of a {@link FencedReadWriteLock}
     */
    public Mode mode() {
        return terms.mode();
    }

    /** The terms of the calling thread. */
    Terms ofThread() {
        if (terms.isSession()) {
            throw new UnsupportedOperationException("a lock with a session is acquired by guards, not by threads");
        }
        return terms.ownedBy(threads.owner(), threads.hasOtherMode());
    }

    /** Counts a further hold of the thread, if it has one. It waits for the extension of a lease until {@code end}. */
    private boolean reenter(Terms wanted, long end) {
        terms.engine().checkOpen();
        Blocking.check();
        Hold hold = threads.reenter();
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
                threads.leave();
            }
        }
        if (!isHeld) {
            throw lost(hold, hold.loss());
        }
        return true;
    }

    /** The loss that was reported; null: only the answer to a request has shown it. */
    static LockLostException lost(Hold hold, @Nullable Lost loss) {
        Lost known = loss != null ? loss : Lost.of(hold.key(), hold.token(), LostReason.TAKEN);
        return new LockLostException(known.toString(), loss);
    }

    private void lock(Terms wanted) {
        if (!reenter(wanted, Clock.NEVER)) {
            threads.put(Waits.acquire(wanted, Clock.NEVER));
        }
    }

    private boolean tryLock(Terms wanted, @Nullable Duration wait) throws InterruptedException {
        long end = Clock.end(wait);
        Blocking.checkInterruptibly();
        return reenter(wanted, end) || held(Waits.acquireInterruptibly(wanted, end));
    }

    private boolean held(@Nullable Hold hold) {
        if (hold != null) {
            threads.put(hold);
        }
        return hold != null;
    }

    /**
     * Waits for the lock without a limit. A server that cannot be reached by the first request is an error at once; a
     * wait that the server has answered goes on through broken connections, restarts and fail-overs. An interruption
     * does not end the wait: when this method returns, the interrupt flag of the thread is set again.
     *
     * @throws LockException       when the server cannot be reached at first, or refuses
     * @throws LockLostException   when this thread has lost the hold that it would re-enter
     * @throws LockClosedException when the client is closed
     */
    @Override
    public void lock() {
        lock(ofThread());
    }

    /**
     * The same with a lease that is not renewed.
     *
     * @param lease 2 ms to a hundred years
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    public void lock(Duration lease) {
        lock(ofThread().fixed(lease));
    }

    /**
     * Waits for the lock without a limit. An interruption withdraws the wait; a grant that was quicker is given back.
     *
     * @throws InterruptedException when this thread is interrupted
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        tryLock(ofThread(), null);
    }

    /**
     * Takes the lock if it is free. If a release of this thread at this key has no reply yet, the attempt waits for
     * that as for its own reply.
     *
     * @return false when another owner holds it, or waits for it
     * @throws LockException when the server cannot be reached, does not answer in time, or refuses
     */
    @Override
    public boolean tryLock() {
        Terms wanted = ofThread();
        long end = Clock.now();
        return reenter(wanted, end) || held(Waits.acquire(wanted, end));
    }

    /**
     * Waits for the lock for at most this time, and for a server that does not answer at most the response timeout
     * longer.
     *
     * @param time the longest wait; zero or less: none
     * @param unit its unit
     * @return false when the lock was not granted in time
     * @throws InterruptedException when this thread is interrupted
     */
    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(ofThread(), Duration.ofNanos(Math.max(0, unit.toNanos(time))));
    }

    /**
     * The same with a lease that is not renewed. A re-entry extends a fixed lease that would end earlier ({@code
     * LOCK.RENEW}). It never shortens a lease, and does not change whether the hold is renewed: a nested {@link
     * #lock()} under a fixed lease is not renewed.
     *
     * @param wait  the longest wait, zero or more
     * @param lease 2 ms to a hundred years
     * @return false when the lock was not granted in time
     * @throws InterruptedException     when this thread is interrupted
     * @throws IllegalArgumentException when the wait is negative, or the lease is out of bounds
     */
    public boolean tryLock(Duration wait, Duration lease) throws InterruptedException {
        return tryLock(ofThread().fixed(lease), Objects.requireNonNull(wait, "wait"));
    }

    /**
     * The same in Redisson's form.
     *
     * @param wait  the longest wait; zero or less: none
     * @param lease the lease, which is not renewed; -1: that of the options, which is renewed
     * @param unit  the unit of both
     * @return false when the lock was not granted in time
     * @throws InterruptedException     when this thread is interrupted
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    public boolean tryLock(long wait, long lease, TimeUnit unit) throws InterruptedException {
        return lease == -1 ? tryLock(wait, unit)
                : tryLock(Duration.ofNanos(Math.max(0, unit.toNanos(wait))), Duration.ofNanos(unit.toNanos(lease)));
    }

    /**
     * Ends a hold of this thread; the outermost one releases the lock, and waits for the answer for at most the
     * response timeout, see {@link Guard#release()}. Whatever it throws, this hold is over.
     *
     * @throws IllegalMonitorStateException when this thread holds nothing
     * @throws LockLostException            when the lock was lost meanwhile
     * @throws LockConnectionException      when the server did not answer; the release goes on in the background
     * @throws LockException                when the server refused
     */
    @Override
    public void unlock() {
        Blocking.check();
        threads.own(UNLOCK);
        Hold hold = threads.leave();
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

    /**
     * Not supported.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }

    /**
     * The fencing token of this thread's hold, see {@link Guard#token()}.
     *
     * @return the token
     * @throws IllegalMonitorStateException when this thread holds nothing
     */
    public long token() {
        return threads.own("read the token of").token();
    }

    /**
     * Whether this thread holds the lock, as far as this process knows. Nothing is sent.
     *
     * @return false also when the hold is lost, when its guard was released, and when the client is closed
     */
    public boolean isHeldByCurrentThread() {
        ThreadHolds.Counted own = threads.get();
        return own != null && own.hold.loss() == null;
    }

    /**
     * How often this thread has acquired the lock and not yet released it.
     *
     * @return the count, 0 when this thread holds nothing. It counts a lost hold too
     */
    public int getHoldCount() {
        return threads.count();
    }

    /**
     * Whether any owner holds the lock ({@code LOCK.INFO}, which the user must be allowed to run).
     *
     * @return whether it is held in this mode
     * @throws LockException when the server cannot be reached, or refuses
     */
    public boolean isLocked() {
        return !holders().isEmpty();
    }

    /**
     * The rest of the lease at the server, of any owner ({@code LOCK.INFO}, as {@link #isLocked()}).
     *
     * @return milliseconds; -1 when it has no end, -2 when the lock is not held in this mode
     * @throws LockException when the server cannot be reached, or refuses
     */
    public long remainTimeToLive() {
        // Of several readers the last one counts.
        long last = -2;
        for (LockInfo.Holder holder : holders()) {
            if (holder.remaining() == null) {
                return -1;
            }
            last = Math.max(last, holder.remaining().toMillis());
        }
        return last;
    }

    /**
     * Ends the hold of any owner and hands the lock to the next waiter ({@code LOCK.BREAK}, which the user must be
     * allowed to run). Its holder learns of the loss at its next renewal.
     *
     * @return whether it was held
     * @throws LockException when the server cannot be reached, or refuses
     */
    public boolean forceUnlock() {
        return Long.valueOf(1).equals(call("LOCK.BREAK"));
    }

    /**
     * Who holds the lock, in any mode, and how many requests wait for it ({@code LOCK.INFO}, as {@link #isLocked()}).
     *
     * @return the state; without holders and waiters when the key does not exist
     * @throws WrongTypeException when the key is no lock
     * @throws LockException      when the server cannot be reached, or refuses
     */
    public LockInfo info() {
        return LockInfo.of(call("LOCK.INFO"));
    }

    private List<LockInfo.Holder> holders() {
        LockInfo info = info();
        // A lock of another library (lock.string-holders) is an exclusive one.
        String mode = "string".equals(info.mode()) ? "exclusive" : info.mode();
        return mode().name().equalsIgnoreCase(mode) ? info.holders() : List.of();
    }

    private @Nullable Object call(String command) {
        return terms.engine().call(Cmd.of(command, new Cmd.Key(key)));
    }

    /**
     * How long this thread's hold is certain, see {@link Guard#validFor()}.
     *
     * @return the time
     * @throws IllegalMonitorStateException when this thread holds nothing
     */
    public Duration validFor() {
        return threads.own("read the validity of").validFor();
    }

    /**
     * The guard of this thread's hold, to pass to other threads or to wait for its loss. Release it by
     * {@link #unlock()}: if the guard is released, closed or left to its lease, all holds of this thread end with it,
     * and {@link #unlock()} throws {@link IllegalMonitorStateException}.
     *
     * @return the guard
     * @throws IllegalMonitorStateException when this thread holds nothing
     */
    public Guard guard() {
        return threads.own("get the guard of");
    }

    /**
     * Sets the lease of this thread's hold, see {@link Guard#renew(Duration)}.
     *
     * @param lease 2 ms to a hundred years
     * @return false when the lock is lost
     * @throws IllegalMonitorStateException when this thread holds nothing
     * @throws LockException                when the server could not be reached, or refused
     * @throws IllegalArgumentException     when the lease is out of bounds
     */
    public boolean renew(Duration lease) {
        return threads.own("renew").renew(lease);
    }

    /**
     * Takes the lock if it is free. If the connection breaks meanwhile, the attempt is repeated once.
     *
     * @return nothing when another owner holds it, or waits for it
     * @throws LockException when the server cannot be reached, does not answer in time, or refuses
     */
    public Optional<Guard> tryAcquire() {
        return Optional.ofNullable(Waits.acquire(terms, Clock.now()));
    }

    /**
     * Waits for the lock for at most this time, and for a server that does not answer at most the response timeout
     * longer. A wait that the server has answered survives broken connections, restarts and fail-overs.
     *
     * @param wait the longest wait, zero or more
     * @return nothing when the lock was not granted in time
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws LockException        when the server refuses, or could not be reached at first or at the end of the wait
     */
    public Optional<Guard> acquireWithin(Duration wait) throws InterruptedException {
        long end = Clock.end(Objects.requireNonNull(wait, "wait"));
        return Optional.ofNullable(Waits.acquireInterruptibly(terms, end));
    }

    /**
     * Waits for the lock without a limit. As of {@link #lock()}, only a wait that the server has answered goes on
     * through the failure of a server.
     *
     * @return the guard
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws LockException        when the server cannot be reached at first, or refuses
     */
    public Guard acquire() throws InterruptedException {
        return Waits.acquireInterruptibly(terms, Clock.NEVER);
    }

    /**
     * The same without an end by an interruption: the wait keeps its place, and the interrupt flag of this thread is
     * set again when it returns.
     *
     * @return the guard
     * @throws LockException when the server cannot be reached at first, or refuses
     */
    public Guard acquireUninterruptibly() {
        return Waits.acquire(terms, Clock.NEVER);
    }

    /**
     * The same without a thread that waits. The future completes on the client's executor. Cancelling it, or completing
     * it otherwise, withdraws the wait; a grant that was quicker is given back.
     *
     * @param wait the longest wait, zero or more; null: no limit
     * @return the guard, or nothing when the lock was not granted in time
     */
    public CompletableFuture<Optional<Guard>> acquireAsync(@Nullable Duration wait) {
        return Waits.async(terms, Clock.end(wait), hold -> hold);
    }

    /**
     * Takes over a hold that another process has acquired, or an earlier life of this one: it is renewed, lost and
     * released here as one that was acquired here. The lease is that of this lock, from this request on ({@code
     * LOCK.RENEW}). The other process should have {@linkplain Guard#leave(Duration) left} it.
     *
     * @param owner the {@linkplain Guard#owner() owner} of the hold
     * @param token its {@linkplain Guard#token() token}
     * @return the guard
     * @throws LockLostException        when that grant is over; nothing is changed
     * @throws LockException            when the server cannot be reached, or refuses. Without an answer the lease may
     *     be set; the hold is not released, as the other process may still have it
     * @throws IllegalArgumentException when the owner is out of the bounds of {@link LockOptions#owner(String)}, or the
     *     lock has {@link LockOptions#session()}
     */
    public Guard resume(String owner, long token) {
        return Hold.resume(terms.namedBy(owner), token);
    }

    @Override
    public String toString() {
        return "FencedLock[" + new String(key, StandardCharsets.UTF_8) + ", " + mode() + "]";
    }
}
