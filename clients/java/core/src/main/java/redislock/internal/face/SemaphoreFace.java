package redislock.internal.face;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import redislock.LockOptions;
import redislock.LockSemaphore;
import redislock.Permit;
import redislock.SemaphoreInfo;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Leases;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;
import redislock.internal.net.Requests;

/** The implementation of a semaphore. Only the commands differ from those of a lock. */
public final class SemaphoreFace implements LockSemaphore {
    private final Engine engine;
    private final LockOptions options;
    private final Terms terms;
    private final byte[] key;

    public SemaphoreFace(Engine engine, byte[] key, LockOptions options) {
        this.engine = engine;
        this.options = options;
        this.terms = Terms.of(engine, key, null, options);
        this.key = terms.key();
    }

    @Override
    public byte[] key() {
        return key.clone();
    }

    @Override
    public LockSemaphore limit(int permits) {
        return new SemaphoreFace(engine, key, options.limit(permits));
    }

    @Override
    public void set(int permits) {
        if (permits < 0) {
            throw new IllegalArgumentException("a number of permits is not negative");
        }
        call(Cmd.of("SEM.SET", new Cmd.Key(key), permits));
    }

    private Object call(Cmd command) {
        engine.checkOpen();
        Blocking.check();
        return Blocking.get(engine.answer(Requests.repeatable(engine.network(), command)));
    }

    @Override
    public Optional<Permit> tryAcquire() {
        return Optional.ofNullable(Waits.acquire(terms, Clock.now()));
    }

    @Override
    public Optional<Permit> acquireWithin(Duration wait) throws InterruptedException {
        long end = Leases.end(Objects.requireNonNull(wait, "wait"));
        return Optional.ofNullable(Waits.acquireInterruptibly(terms, end));
    }

    @Override
    public Permit acquire() throws InterruptedException {
        return Waits.acquireInterruptibly(terms, Clock.NEVER);
    }

    @Override
    public CompletableFuture<Optional<Permit>> acquireAsync(Duration wait) {
        return Waits.async(terms, Leases.end(wait), hold -> hold);
    }

    @Override
    public Optional<SemaphoreInfo> info() {
        Object reply = call(Cmd.of("SEM.INFO", new Cmd.Key(key)));
        if (reply == null) {
            return Optional.empty();
        }
        Long nextEnd = number(reply, "next-end-ms");
        return Optional.of(new SemaphoreInfo(count(reply, "permits"), count(reply, "free"), count(reply, "held"),
                nextEnd == null ? null : Duration.ofMillis(nextEnd), count(reply, "waiters"),
                Duration.ofMillis(count(reply, "longest-wait-ms"))));
    }

    private long count(Object reply, String name) {
        Long number = number(reply, name);
        if (number == null) {
            throw Reply.foreign(engine.network().server());
        }
        return number;
    }

    private static Long number(Object reply, String name) {
        return Reply.field(reply, name) instanceof Long number ? number : null;
    }
}
