package redislock.internal.net;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import redislock.internal.Clock;
import redislock.internal.Pause;

/**
 * Requests that are answered at once and hold nothing: to set, count down and read a semaphore or a latch. A request is
 * repeated where that is safe, for half of the response timeout; the last attempt has the other half. When a connection
 * breaks it is unknown whether the request was served, so a request that must not be served twice is not repeated then.
 */
public final class Retrier {
    private final Network network;
    private final Caller caller;
    /** Latest start of an attempt. */
    private final long end;
    /** Latest end of an attempt. */
    private final long over;
    private final Pause pause = new Pause();
    private final CompletableFuture<Object> result = new CompletableFuture<>();

    private Retrier(Network network, byte[] key) {
        this.network = network;
        this.caller = Caller.shared(network, key);
        this.end = Clock.now() + network.patience() / 2;
        this.over = Clock.now() + network.patience();
    }

    /** Sends a request that may be served twice. The future completes on the client's thread or on one of Lettuce. */
    public static CompletableFuture<Object> repeatable(Network network, byte[] key, Cmd command) {
        Retrier retrier = new Retrier(network, key);
        network.loop().execute(() -> retrier.repeat(command, retrier::finish));
        return retrier.result;
    }

    /**
     * Sends a request that must be served at most once. A shared connection may have broken unnoticed since its last
     * use. {@code probe}, a read-only request about the same key, is sent first: it finds a broken connection and the
     * node of the key, so that the outcome of {@code command} can stay unknown only if the connection breaks between
     * the two.
     */
    public static CompletableFuture<Object> atMostOnce(Network network, byte[] key, Cmd probe, Cmd command) {
        Retrier retrier = new Retrier(network, key);
        network.loop().execute(() -> retrier.once(probe, command));
        return retrier.result;
    }

    private void once(Cmd probe, Cmd command) {
        repeat(probe, probed -> {
            if (probed.error() != null && probed.error().isPassing()) {
                finish(probed);
                return;
            }
            // A refusal is a reply as well: the ACL may forbid the probe and allow the command.
            call(command, reply -> {
                if (reply.error() != null && caller.wasUnanswered()) {
                    result.completeExceptionally(Errors.unheard(reply.error()));
                } else if (reply.error() != null && reply.error().isPassing() && hasTime()) {
                    network.loop().after(pause.take(Clock.NEVER), () -> once(probe, command));
                } else {
                    finish(reply);
                }
            });
        });
    }

    private void repeat(Cmd command, Consumer<Caller.Result> then) {
        call(command, reply -> {
            if (reply.error() != null && reply.error().isPassing() && hasTime()) {
                network.loop().after(pause.take(Clock.NEVER), () -> repeat(command, then));
            } else {
                then.accept(reply);
            }
        });
    }

    private void call(Cmd command, Consumer<Caller.Result> then) {
        caller.callOnLoop(command, Math.max(Clock.MILLI, Clock.left(over)), then);
    }

    private boolean hasTime() {
        return Clock.now() + pause.peek() < end;
    }

    private void finish(Caller.Result reply) {
        if (reply.error() != null) {
            result.completeExceptionally(reply.error());
        } else {
            result.complete(reply.value());
        }
    }
}
