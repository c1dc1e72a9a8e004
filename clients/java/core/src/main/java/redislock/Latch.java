package redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A latch on a key: {@link #set(long)} closes it with a count, it opens when it has been counted down to zero, and then
 * all waits end. It has the layout of Redisson's {@code RCountDownLatch}. A latch that does not exist is open: set it
 * before the waiters are started.
 */
public interface Latch {
    /**
     * The key.
     *
     * @return a copy
     */
    byte[] key();

    /**
     * Sets the count, whether the latch was open or not; 0 opens it ({@code LATCH.SET}). Served at most once, as
     * {@link #countDown(long)}.
     *
     * @param count zero or more
     * @throws UnheardException         when the request may have been served
     * @throws LockException            when it was not served
     * @throws IllegalArgumentException when the count is negative
     */
    void set(long count);

    /**
     * Counts the latch down by one, see {@link #countDown(long)}.
     *
     * @return the rest
     */
    long countDown();

    /**
     * Counts the latch down ({@code LATCH.DOWN}). The request is served at most once: while the server has certainly
     * not served it, it is repeated, for at most the response timeout. When the connection breaks between request and
     * reply it is not repeated.
     *
     * @param count one or more
     * @return the rest: 0 when the latch is open
     * @throws UnheardException         when the request may have been served
     * @throws LockException            when it was not served
     * @throws IllegalArgumentException when the count is less than one
     */
    long countDown(long count);

    /**
     * The count ({@code LATCH.WAIT}). No command of the module has it, so {@code GET}, which the user must be allowed
     * to run, reads it from a latch that is closed.
     *
     * @return 0 when the latch is open
     * @throws WrongTypeException when the key holds something else
     * @throws LockException      when the server refuses, or did not answer within the response timeout
     */
    long count();

    /**
     * Whether the latch is open ({@code LATCH.WAIT}).
     *
     * @return true when it is
     * @throws LockException when the server cannot be reached, does not answer in time, or refuses
     */
    boolean tryAwait();

    /**
     * Waits until the latch is open, for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return false when it is still closed
     * @throws InterruptedException when this thread is interrupted
     * @throws LockException        when the server refuses, or could not be reached at the end of the wait
     */
    boolean awaitWithin(Duration wait) throws InterruptedException;

    /**
     * Waits until the latch is open without a limit, also through the failure of a server.
     *
     * @throws InterruptedException when this thread is interrupted
     * @throws LockException        when the server refuses
     */
    void await() throws InterruptedException;

    /**
     * The same without a thread that waits. The future completes on the client's executor.
     *
     * @param wait the longest wait, zero or more; null: no limit
     * @return whether the latch is open
     */
    CompletableFuture<Boolean> awaitAsync(Duration wait);
}
