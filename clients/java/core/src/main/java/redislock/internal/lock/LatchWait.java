package redislock.internal.lock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;

/**
 * A wait for a latch. It holds nothing, so nothing is undone; it has no place in a queue: all waits end when it opens.
 */
public final class LatchWait implements Engine.Pending {
    private final Engine engine;
    private final Wait wait;
    private final AtomicBoolean isOver = new AtomicBoolean();
    private final CompletableFuture<Boolean> result = new CompletableFuture<>();

    private LatchWait(Engine engine, byte[] key, Integer queue, long end) {
        this.engine = engine;
        Network network = engine.network();
        Wait.Request request = new Wait.Request(
                key, Cmd.of("LATCH.WAIT", new Cmd.Key(key)), Clock.NEVER, true, false, queue);
        wait = new Wait(network, network.link(), request, end, new Wait.Listener() {
            @Override
            public void ended(Wait.Grant grant, LockException error) {
                over(grant != null, error);
            }

            @Override
            public void restart() {
                throw new IllegalStateException("a latch grants nothing that could be over");
            }
        });
    }

    /** Waits until {@code end}; {@code queue} may be null. */
    public static LatchWait start(Engine engine, byte[] key, Integer queue, long end) {
        engine.checkOpen();
        LatchWait waiting = new LatchWait(engine, key, queue, end);
        engine.add(waiting);
        waiting.wait.first();
        return waiting;
    }

    /** Whether the latch is open. It completes on a thread that must not be blocked. */
    public CompletableFuture<Boolean> result() {
        return result;
    }

    /** The result is no longer wanted. */
    public void cancel() {
        over(false, null);
    }

    @Override
    public void end(RuntimeException why) {
        over(false, why);
    }

    private void over(boolean isOpen, RuntimeException error) {
        if (!isOver.compareAndSet(false, true)) {
            return;
        }
        engine.loop().execute(() -> {
            if (wait.stop() && !isOpen) {
                wait.expire();
            }
        });
        engine.remove(this);
        if (error != null) {
            result.completeExceptionally(error);
        } else {
            result.complete(isOpen);
        }
    }
}
