package redislock;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;

/**
 * A semaphore on a key, which limits how many owners hold a {@link Permit} at a time, in the layout of Redisson's
 * {@code RPermitExpirableSemaphore}. Permits are granted in the order of requests. Until {@link #set(int)} or
 * {@link LockOptions#limit(int)} has created the semaphore, an acquisition throws {@link NoSemaphoreException}. (A wait
 * goes on when the semaphore is deleted and created again.) In a cluster the key has a hash tag, or no braces at all.
 */
public final class LockSemaphore {
    private final Engine engine;
    private final LockOptions options;
    private final Terms terms;
    private final byte[] key;

    LockSemaphore(Engine engine, byte[] key, LockOptions options) {
        this.engine = engine;
        this.options = options;
        this.terms = Terms.of(engine, key, null, options);
        this.key = terms.key();
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
     * This semaphore; an acquisition creates it with this number of permits if it is missing.
     *
     * @param permits 1 to 2,147,483,647
     * @return a semaphore of the same key
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockSemaphore limit(int permits) {
        return new LockSemaphore(engine, key, options.limit(permits));
    }

    /**
     * This semaphore; an acquisition takes so many of its permits, all or none, see {@link LockOptions#count(int)}.
     *
     * @param permits 1 to 64
     * @return a semaphore of the same key
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockSemaphore count(int permits) {
        return new LockSemaphore(engine, key, options.count(permits));
    }

    /**
     * Creates the semaphore, or changes its number of permits ({@code SEM.SET}). Held permits stay held. A request
     * without a reply is repeated.
     *
     * @param permits 0 to 2,147,483,647
     * @throws LockException when the server refuses, or did not answer within the response timeout
     */
    public void set(int permits) {
        if (permits < 0) {
            throw new IllegalArgumentException("a number of permits is not negative");
        }
        engine.call(Cmd.of("SEM.SET", new Cmd.Key(key), permits));
    }

    /**
     * Takes a permit if one is free.
     *
     * @return nothing when no permit is free, or other owners wait
     * @throws NoSemaphoreException when nobody has created the semaphore
     * @throws LockException        when the server cannot be reached, does not answer in time, or refuses
     */
    public Optional<Permit> tryAcquire() {
        return Optional.ofNullable(Waits.acquire(terms, Clock.now()));
    }

    /**
     * Waits for a permit for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return nothing when no permit was granted in time
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws LockException        when the server refuses, or could not be reached at first or at the end of the wait
     */
    public Optional<Permit> acquireWithin(Duration wait) throws InterruptedException {
        long end = Clock.end(Objects.requireNonNull(wait, "wait"));
        return Optional.ofNullable(Waits.acquireInterruptibly(terms, end));
    }

    /**
     * Waits for a permit without a limit. As of {@link FencedLock#lock()}, only a wait that the server has answered
     * goes on through the failure of a server.
     *
     * @return the permit
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws NoSemaphoreException when nobody has created the semaphore
     * @throws LockException        when the server cannot be reached at first, or refuses
     */
    public Permit acquire() throws InterruptedException {
        return Waits.acquireInterruptibly(terms, Clock.NEVER);
    }

    /**
     * The same without a thread that waits, see {@link FencedLock#acquireAsync(Duration)}.
     *
     * @param wait the longest wait, zero or more; null: no limit
     * @return the permit, or nothing when none was granted in time
     */
    public CompletableFuture<Optional<Permit>> acquireAsync(@Nullable Duration wait) {
        return Waits.async(terms, Clock.end(wait), hold -> hold);
    }

    /**
     * Takes over a permit that another process has acquired, see {@link FencedLock#resume}.
     *
     * @param id    the {@linkplain Guard#owner() owner} of the permit, which is its id
     * @param token its {@linkplain Guard#token() token}, which the server does not check
     * @return the permit
     * @throws LockLostException        when it is not held any more
     * @throws LockException            when the server cannot be reached, did not answer in time, or refuses
     * @throws IllegalArgumentException when the id is out of the bounds of owners
     */
    public Permit resume(String id, long token) {
        return Hold.resume(terms.namedBy(id), token);
    }

    /**
     * The numbers of permits and waiters ({@code SEM.INFO}).
     *
     * @return nothing when there is no such semaphore and no request waits for one
     * @throws LockException when the server refuses, or did not answer within the response timeout
     */
    public Optional<SemaphoreInfo> info() {
        Object reply = engine.call(Cmd.of("SEM.INFO", new Cmd.Key(key)));
        if (reply == null) {
            return Optional.empty();
        }
        Long nextEnd = Reply.number(reply, "next-end-ms");
        return Optional.of(new SemaphoreInfo(count(reply, "permits"), count(reply, "free"), count(reply, "held"),
                nextEnd == null ? null : Duration.ofMillis(nextEnd), count(reply, "waiters"),
                Duration.ofMillis(count(reply, "longest-wait-ms"))));
    }

    private long count(Object reply, String name) {
        Long number = Reply.number(reply, name);
        if (number == null) {
            throw Reply.foreign(engine.network().server());
        }
        return number;
    }
}
