package redislock.internal.net;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.Pause;

/**
 * Requests that are answered at once and hold nothing: to set, count down and read a semaphore or a latch. A request is
 * repeated where that is safe, for half of the response timeout; the last attempt has the other half. When a connection
 * breaks it is unknown whether the request was served, so a request that must not be served twice is not repeated then.
 */
public final class Requests {
    private final Network network;
    /** Of a request that is served at most once, otherwise null. */
    private final Cmd probe;
    /** Latest start of an attempt. */
    private final long end;
    /** Latest end of an attempt. */
    private final long over;
    private final Pause pause = new Pause();
    private final CompletableFuture<Object> result = new CompletableFuture<>();

    private Requests(Network network, Cmd probe) {
        this.network = network;
        this.probe = probe;
        this.end = Clock.now() + network.patience() / 2;
        this.over = Clock.now() + network.patience();
    }

    /** Sends a request that may be served twice. The future completes on the client's thread. */
    public static CompletableFuture<Object> repeatable(Network network, Cmd command) {
        Requests requests = new Requests(network, null);
        network.loop().execute(() -> requests.send(command, requests::finish));
        return requests.result;
    }

    /**
     * Sends a request that must be served at most once. The connection may have ended unnoticed since its last use.
     * {@code probe}, a read-only request about the same key, is sent first: it finds that out, so that the outcome of
     * {@code command} can stay unknown only if the connection breaks between the two.
     */
    public static CompletableFuture<Object> atMostOnce(Network network, Cmd probe, Cmd command) {
        Requests requests = new Requests(network, probe);
        network.loop().execute(() -> requests.send(probe, probed -> {
            // A refusal is a reply as well: the ACL may forbid the probe and allow the command.
            if (probed.error() != null && probed.error().isPassing()) {
                requests.finish(probed);
            } else {
                requests.send(command, requests::finish);
            }
        }));
        return requests.result;
    }

    private void send(Cmd command, Consumer<Link.Result> then) {
        long patience = Math.max(Clock.MILLI, Clock.left(over));
        Consumer<Link.Result> received = reply -> {
            LockException error = reply.error();
            boolean isPassing = error != null && error.isPassing() && Clock.now() + pause.peek() < end;
            // One that cannot be sent is an error at once.
            boolean isHopeless = error != null && !reply.isUnanswered() && Errors.code(error).isEmpty();
            if (isPassing && !isHopeless && !(isOnce(command) && reply.isUnanswered())) {
                network.loop().after(pause.take(Clock.NEVER), () -> send(command, then));
            } else {
                then.accept(reply);
            }
        };
        if (isOnce(command)) {
            network.link().callOnce(command, patience, received);
        } else {
            network.link().callOnLoop(command, patience, received);
        }
    }

    private boolean isOnce(Cmd command) {
        return probe != null && command != probe;
    }

    private void finish(Link.Result reply) {
        LockException error = reply.error();
        if (error == null) {
            result.complete(reply.value());
        } else {
            result.completeExceptionally(probe != null && reply.isUnanswered() ? Errors.unheard(error) : error);
        }
    }
}
