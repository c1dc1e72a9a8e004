package redislock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Locks that are held together, each with its own renewal. */
public interface MultiGuard extends AutoCloseable {
    /**
     * The guard of each lock.
     *
     * @return in the caller's order
     */
    List<Guard> members();

    /**
     * The fencing token of each lock, in the same order. A token fences the resource that its own lock protects; tokens
     * of two locks cannot be compared.
     *
     * @return the tokens
     */
    List<Long> tokens();

    /**
     * Completes when one of the locks is lost: then the work that needs all of them must stop. After a release it never
     * completes.
     *
     * @return a future of its own for each call
     */
    CompletableFuture<Lost> lost();

    /**
     * How long all the locks are certainly still held.
     *
     * @return the time, zero when one is lost
     */
    Duration validFor();

    /**
     * Releases all the locks at the same time, and waits for the answers as {@link Guard#release()}.
     *
     * @return {@link Released#YES} when each of them was still held
     * @throws LockConnectionException when a server did not answer within the response timeout; the release of its lock
     *     goes on in the background
     * @throws LockException           when a server refused
     */
    Released release();

    /**
     * Releases all the locks in the background, if they are not released.
     *
     * @throws LockLostException the first time, when one of them was reported as lost before
     */
    @Override
    void close();
}
