package redislock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;

/** Locks that are held together, each with its own renewal. */
public final class MultiGuard implements AutoCloseable {
    private final List<Hold> holds;

    MultiGuard(List<Hold> holds) {
        this.holds = holds;
    }

    /**
     * The guard of each lock.
     *
     * @return in the caller's order
     */
    public List<Guard> members() {
        return List.copyOf(holds);
    }

    /**
     * The fencing token of each lock, in the same order. A token fences the resource that its own lock protects; tokens
     * of two locks cannot be compared.
     *
     * @return the tokens
     */
    public List<Long> tokens() {
        return holds.stream().map(Hold::token).toList();
    }

    /**
     * Completes when one of the locks is lost: then the work that needs all of them must stop. After a release it never
     * completes.
     *
     * @return a future of its own for each call
     */
    public CompletableFuture<Lost> lost() {
        CompletableFuture<Lost> first = new CompletableFuture<>();
        holds.forEach(hold -> hold.lost().thenAccept(first::complete));
        return first;
    }

    /**
     * How long all the locks are certainly still held.
     *
     * @return the time, zero when one is lost
     */
    public Duration validFor() {
        return holds.stream().map(Hold::validFor).min(Duration::compareTo).orElse(Duration.ZERO);
    }

    /**
     * Releases all the locks at the same time, and waits for the answers as {@link Guard#release()}.
     *
     * @return {@link Released#YES} when each of them was still held
     * @throws LockConnectionException when a server did not answer within the response timeout; the release of its lock
     *     goes on in the background
     * @throws LockException           when a server refused
     */
    public Released release() {
        Blocking.check();
        Ending ending = new Ending(holds);
        ending.throwFailure();
        return ending.notHeld().isEmpty() ? Released.YES : Released.NOT_HELD;
    }

    /**
     * Sets each lease to this time from now and leaves the locks to it, see {@link Guard#leave(Duration)}.
     *
     * @param lease 2 ms to a hundred years
     * @return true when each of them was still held
     * @throws LockException            when a server could not be reached, or refused; then the guard of its lock is
     *     unchanged
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    public boolean leave(Duration lease) {
        Blocking.check();
        List<CompletableFuture<Boolean>> leaving = holds.stream().map(hold -> hold.startLeave(lease)).toList();
        boolean areHeld = true;
        RuntimeException failure = null;
        for (int i = 0; i < leaving.size(); i++) {
            try {
                areHeld &= holds.get(i).awaitLeft(leaving.get(i));
            } catch (RuntimeException error) {
                failure = error;
            }
        }
        if (failure != null) {
            throw failure;
        }
        return areHeld;
    }

    /**
     * Releases all the locks in the background, if they are not released.
     *
     * @throws LockLostException the first time, when one of them was reported as lost before
     */
    @Override
    public void close() {
        Lost loss = null;
        for (Hold hold : holds) {
            Lost known = hold.closeQuietly();
            loss = loss != null ? loss : known;
        }
        if (loss != null) {
            throw new LockLostException(loss.toString(), loss);
        }
    }
}
