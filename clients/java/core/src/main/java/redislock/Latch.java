package redislock;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.LatchWait;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;

/**
 * A latch on a key: {@link #set(long)} closes it with a count, it opens when it has been counted down to zero, and then
 * all waits end. It has the layout of Redisson's {@code RCountDownLatch}. A latch that does not exist is open: set it
 * before the waiters are started.
 */
public final class Latch {
    private final Engine engine;
    private final byte[] key;
    /** With how many waiting requests it is not waited for, or null. */
    private final @Nullable Integer queue;

    Latch(Engine engine, byte[] key, @Nullable Integer queue) {
        this.engine = engine;
        this.key = Objects.requireNonNull(key, "key").clone();
        this.queue = queue;
    }

    /**
     * This latch; a wait is refused with {@link QueueFullException} if so many requests wait for it already, see
     * {@link LockOptions#queue(int)}.
     *
     * @param requests 0 to 1,000,000
     * @return a latch of the same key
     * @throws IllegalArgumentException when it is out of bounds
     */
    public Latch queue(int requests) {
        return new Latch(engine, key, LockOptions.defaults().queue(requests).queue().orElseThrow());
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
     * Sets the count, whether the latch was open or not; 0 opens it ({@code LATCH.SET}). Served at most once, as
     * {@link #countDown(long)}.
     *
     * @param count zero or more
     * @throws UnheardException         when the request may have been served
     * @throws LockException            when it was not served
     * @throws IllegalArgumentException when the count is negative
     */
    public void set(long count) {
        if (count < 0) {
            throw new IllegalArgumentException("a count is not negative");
        }
        atMostOnce(Cmd.of("LATCH.SET", new Cmd.Key(key), count));
    }

    /**
     * Counts the latch down by one, see {@link #countDown(long)}.
     *
     * @return the rest
     */
    public long countDown() {
        return countDown(1);
    }

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
    public long countDown(long count) {
        if (count < 1) {
            throw new IllegalArgumentException("a latch is counted down by at least one");
        }
        if (atMostOnce(Cmd.of("LATCH.DOWN", new Cmd.Key(key), count)) instanceof Long left) {
            return left;
        }
        throw Reply.foreign(engine.network().server());
    }

    private @Nullable Object atMostOnce(Cmd command) {
        return engine.callOnce(Cmd.of("LATCH.WAIT", new Cmd.Key(key)), command);
    }

    /**
     * The count ({@code LATCH.WAIT}). No command of the module has it, so {@code GET}, which the user must be allowed
     * to run, reads it from a latch that is closed.
     *
     * @return 0 when the latch is open
     * @throws WrongTypeException when the key holds something else
     * @throws LockException      when the server refuses, or did not answer within the response timeout
     */
    public long count() {
        // Refused if the key holds something else, or the server has no module.
        if (Long.valueOf(1).equals(engine.call(Cmd.of("LATCH.WAIT", new Cmd.Key(key))))) {
            return 0;
        }
        Object reply = engine.call(Cmd.of("GET", new Cmd.Key(key)));
        try {
            return reply == null ? 0 : Math.max(0, Long.parseLong(String.valueOf(Reply.text(reply))));
        } catch (NumberFormatException changedInBetween) {
            throw RefusedException.of(engine.network().server(), "WRONGTYPE", "the key holds no count");
        }
    }

    /**
     * Whether the latch is open ({@code LATCH.WAIT}).
     *
     * @return true when it is
     * @throws LockException when the server cannot be reached, does not answer in time, or refuses
     */
    public boolean tryAwait() {
        Blocking.check();
        return Blocking.get(LatchWait.start(engine, key, queue, Clock.now()).result());
    }

    /**
     * Waits until the latch is open, for at most this time; for a server that does not answer at most the
     * response timeout longer.
     *
     * @param wait the longest wait, zero or more
     * @return false when it is still closed
     * @throws InterruptedException when this thread is interrupted
     * @throws LockException        when the server refuses, or could not be reached at first or at the end of the wait
     */
    public boolean awaitWithin(Duration wait) throws InterruptedException {
        return await(Clock.end(Objects.requireNonNull(wait, "wait")));
    }

    /**
     * Waits until the latch is open without a limit. As of {@link FencedLock#lock()}, only a wait that the server has
     * answered goes on through the failure of a server.
     *
     * @throws InterruptedException when this thread is interrupted
     * @throws LockException        when the server cannot be reached at first, or refuses
     */
    public void await() throws InterruptedException {
        await(Clock.NEVER);
    }

    private boolean await(long end) throws InterruptedException {
        Blocking.checkInterruptibly();
        LatchWait wait = LatchWait.start(engine, key, queue, end);
        try {
            return Blocking.getInterruptibly(wait.result());
        } catch (InterruptedException interrupted) {
            wait.cancel();
            throw interrupted;
        }
    }

    /**
     * The same without a thread that waits. The future completes on the client's executor.
     *
     * @param longest the longest wait, zero or more; null: no limit
     * @return whether the latch is open
     */
    public CompletableFuture<Boolean> awaitAsync(@Nullable Duration longest) {
        LatchWait wait = LatchWait.start(engine, key, queue, Clock.end(longest));
        CompletableFuture<Boolean> future = engine.forProgram(wait.result());
        future.whenComplete((isOpen, error) -> wait.cancel());
        return future;
    }
}
