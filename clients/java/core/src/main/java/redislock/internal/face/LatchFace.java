package redislock.internal.face;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import redislock.Latch;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.LatchWait;
import redislock.internal.lock.Leases;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;
import redislock.internal.net.Requests;

/** The implementation of a latch. */
public final class LatchFace implements Latch {
    private final Engine engine;
    private final byte[] key;

    public LatchFace(Engine engine, byte[] key) {
        this.engine = engine;
        this.key = Objects.requireNonNull(key, "key").clone();
    }

    @Override
    public byte[] key() {
        return key.clone();
    }

    @Override
    public void set(long count) {
        if (count < 0) {
            throw new IllegalArgumentException("a count is not negative");
        }
        atMostOnce(Cmd.of("LATCH.SET", new Cmd.Key(key), count));
    }

    @Override
    public long countDown() {
        return countDown(1);
    }

    @Override
    public long countDown(long count) {
        if (count < 1) {
            throw new IllegalArgumentException("a latch is counted down by at least one");
        }
        if (atMostOnce(Cmd.of("LATCH.DOWN", new Cmd.Key(key), count)) instanceof Long left) {
            return left;
        }
        throw Reply.foreign(engine.network().server());
    }

    private Object atMostOnce(Cmd command) {
        engine.checkOpen();
        Blocking.check();
        return Blocking.get(engine.answer(
                Requests.atMostOnce(engine.network(), Cmd.of("LATCH.WAIT", new Cmd.Key(key)), command)));
    }

    @Override
    public long count() {
        engine.checkOpen();
        Blocking.check();
        // Refused if the key holds something else, or the server has no module.
        if (Long.valueOf(1).equals(read(Cmd.of("LATCH.WAIT", new Cmd.Key(key))))) {
            return 0;
        }
        Object reply = read(Cmd.of("GET", new Cmd.Key(key)));
        try {
            return reply == null ? 0 : Math.max(0, Long.parseLong(String.valueOf(Reply.text(reply))));
        } catch (NumberFormatException changedInBetween) {
            throw RefusedException.of(engine.network().server(), "WRONGTYPE", "the key holds no count");
        }
    }

    private Object read(Cmd command) {
        return Blocking.get(engine.answer(Requests.repeatable(engine.network(), command)));
    }

    @Override
    public boolean tryAwait() {
        Blocking.check();
        return Blocking.get(LatchWait.start(engine, key, Clock.now()).result());
    }

    @Override
    public boolean awaitWithin(Duration wait) throws InterruptedException {
        return await(Leases.end(Objects.requireNonNull(wait, "wait")));
    }

    @Override
    public void await() throws InterruptedException {
        await(Clock.NEVER);
    }

    private boolean await(long end) throws InterruptedException {
        Blocking.check();
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        LatchWait wait = LatchWait.start(engine, key, end);
        try {
            return Blocking.getInterruptibly(wait.result());
        } catch (InterruptedException interrupted) {
            wait.cancel();
            throw interrupted;
        }
    }

    @Override
    public CompletableFuture<Boolean> awaitAsync(Duration longest) {
        LatchWait wait = LatchWait.start(engine, key, Leases.end(longest));
        CompletableFuture<Boolean> future = new CompletableFuture<>();
        future.whenComplete((isOpen, error) -> wait.cancel());
        wait.result().whenComplete((isOpen, error) -> engine.complete(() -> {
            if (error != null) {
                future.completeExceptionally(error);
            } else {
                future.complete(isOpen);
            }
        }));
        return future;
    }
}
