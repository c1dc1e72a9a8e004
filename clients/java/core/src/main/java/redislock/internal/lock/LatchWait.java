package redislock.internal.lock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import redislock.LockConnectionException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;

/**
 * A wait for a latch. It holds nothing, so nothing is undone; it has no place in a queue: all waits end when it opens.
 */
public final class LatchWait implements Engine.Pending {
    private final Engine engine;
    private final Wait wait;
    private final long end;
    private final AtomicBoolean isOver = new AtomicBoolean();
    private final CompletableFuture<Boolean> result = new CompletableFuture<>();
    private volatile Loop.Timer overtime;

    private LatchWait(Engine engine, byte[] key, long end) {
        this.engine = engine;
        this.end = end;
        Network network = engine.network();
        // A slice ends before the response timeout of its connection. A late reply counts: the latch was open.
        Wait.Request request = new Wait.Request(
                key, Cmd.of("LATCH.WAIT", key), network.patience() / 2, Clock.NEVER, false, false, null);
        wait = new Wait(network, request, end, (grant, error) -> over(grant != null, error));
    }

    /** Waits until {@code end}. */
    public static LatchWait start(Engine engine, byte[] key, long end) {
        engine.checkOpen();
        LatchWait waiting = new LatchWait(engine, key, end);
        engine.add(waiting);
        if (end != Clock.NEVER) {
            waiting.overtime = engine.loop().at(Acquisition.overtimeEnd(engine, end), () -> waiting.over(false,
                    new LockConnectionException(engine.network().name(), "no answer in time", null)));
        }
        waiting.wait.first(asked -> engine.loop().execute(() -> {
            if (!waiting.isOver.get()) {
                waiting.wait.resume(asked);
            }
        }));
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
        Loop.Timer timer = overtime;
        if (timer != null) {
            timer.cancel();
        }
        engine.loop().execute(() -> {
            wait.stop();
            wait.closeSlices();
        });
        engine.remove(this);
        if (error != null) {
            result.completeExceptionally(error);
        } else {
            result.complete(isOpen);
        }
    }
}
