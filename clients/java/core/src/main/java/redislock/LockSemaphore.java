package redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A semaphore on a key, which limits how many owners hold a {@link Permit} at a time, in the layout of Redisson's
 * {@code RPermitExpirableSemaphore}. Permits are granted in the order of requests. A semaphore has no permits until
 * {@link #set(int)} or {@link LockOptions#limit(int)} creates it; until then waits continue. In a cluster the key has a
 * hash tag, or no braces at all.
 */
public interface LockSemaphore {
    /**
     * The key.
     *
     * @return a copy
     */
    byte[] key();

    /**
     * This semaphore; an acquisition creates it with this number of permits if it is missing.
     *
     * @param permits 1 to 2,147,483,647
     * @return a semaphore of the same key
     * @throws IllegalArgumentException when it is out of bounds
     */
    LockSemaphore limit(int permits);

    /**
     * Creates the semaphore, or changes its number of permits ({@code SEM.SET}). Held permits stay held. A request
     * without a reply is repeated.
     *
     * @param permits 0 to 2,147,483,647
     * @throws LockException when the server refuses, or did not answer within the response timeout
     */
    void set(int permits);

    /**
     * Takes a permit if one is free.
     *
     * @return nothing when no permit is free, other owners wait, or there is no such semaphore
     * @throws LockException when the server cannot be reached, does not answer in time, or refuses
     */
    Optional<Permit> tryAcquire();

    /**
     * Waits for a permit for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return nothing when no permit was granted in time
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws LockException        when the server refuses, or could not be reached at the end of the wait
     */
    Optional<Permit> acquireWithin(Duration wait) throws InterruptedException;

    /**
     * Waits for a permit without a limit.
     *
     * @return the permit
     * @throws InterruptedException when this thread is interrupted; the wait is withdrawn
     * @throws LockException        when the server refuses
     */
    Permit acquire() throws InterruptedException;

    /**
     * The same without a thread that waits, see {@link FencedLock#acquireAsync(Duration)}.
     *
     * @param wait the longest wait, zero or more; null: no limit
     * @return the permit, or nothing when none was granted in time
     */
    CompletableFuture<Optional<Permit>> acquireAsync(Duration wait);

    /**
     * The numbers of permits and waiters ({@code SEM.INFO}).
     *
     * @return nothing when there is no such semaphore and no request waits for one
     * @throws LockException when the server refuses, or did not answer within the response timeout
     */
    Optional<SemaphoreInfo> info();
}
