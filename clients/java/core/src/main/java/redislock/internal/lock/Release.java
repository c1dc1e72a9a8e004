package redislock.internal.lock;

import java.util.function.Consumer;
import redislock.LockException;
import redislock.Released;
import redislock.internal.Clock;
import redislock.internal.Pause;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/** A release that is sent until it is answered, or until its end. */
final class Release {
    /**
     * The result.
     *
     * @param released       the answer, or null
     * @param error          why there is none, or null
     * @param underWayUntil  until when an unanswered one may still be served; zero: there is none
     */
    record Result(Released released, LockException error, long underWayUntil) {}

    private final Network network;
    private final Cmd command;
    private final Caller caller;
    private final long end;
    private final Consumer<Result> then;
    private final Pause pause = new Pause();
    private volatile long underWayUntil;

    private Release(Network network, Claim claim, Long token, long end, Consumer<Result> then) {
        this.network = network;
        this.command = claim.release(token);
        this.caller = Caller.shared(network, claim.key());
        this.end = end;
        this.then = then;
    }

    /** Sends it at once. The result comes on a thread that must not be blocked. */
    static void send(Network network, Claim claim, Long token, long end, Consumer<Result> then) {
        new Release(network, claim, token, end, then).send();
    }

    private void send() {
        caller.call(command, network.patience() / 2, this::answered);
    }

    private void answered(Caller.Result reply) {
        if (caller.wasUnanswered()) {
            underWayUntil = Clock.now() + network.patience();
        }
        LockException error = reply.error();
        if (error == null) {
            boolean isKnown = reply.value() == null || reply.value() instanceof Long;
            // Nil after a request without a reply: that one may have been served.
            Released released = reply.value() != null || underWayUntil > 0 ? Released.YES : Released.NOT_HELD;
            then.accept(new Result(isKnown ? released : null, isKnown ? null : Reply.foreign(network.name()),
                    underWayUntil));
        } else if (error.isPassing() && Clock.plus(Clock.now(), pause.peek()) < end) {
            network.loop().after(pause.take(Clock.NEVER), this::send);
        } else {
            network.counts().releasesFailed.increment();
            then.accept(new Result(null, error, underWayUntil));
        }
    }
}
