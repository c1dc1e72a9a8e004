package redislock.internal.lock;

import java.util.function.Consumer;
import redislock.LockException;
import redislock.Released;
import redislock.WrongTypeException;
import redislock.internal.Clock;
import redislock.internal.Pause;
import redislock.internal.net.Cmd;
import redislock.internal.net.Link;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/** A release that is sent until it is answered, or until its end. */
final class Release {
    /** The result: the answer, or why there is none. */
    record Result(Released released, LockException error) {}

    private final Network network;
    private final Cmd command;
    private final long end;
    private final Consumer<Result> then;
    private final Pause pause = new Pause();
    /** Whether an earlier attempt has no reply, and may have been served. */
    private boolean wasUnanswered;

    private Release(Engine engine, Cmd command, long end, Consumer<Result> then) {
        this.network = engine.network();
        this.command = command;
        this.end = end;
        this.then = then;
    }

    /** Sends it at once. The result comes on a thread that must not be blocked. */
    static void send(Engine engine, Cmd command, long end, Consumer<Result> then) {
        new Release(engine, command, end, then).send();
    }

    private void send() {
        network.link().call(command, network.patience() / 2, network.patience(), this::answered);
    }

    private void answered(Link.Result reply) {
        wasUnanswered |= reply.isUnanswered();
        LockException error = reply.error();
        if (error == null) {
            boolean isKnown = reply.value() == null || reply.value() instanceof Long;
            // Nil after a request without a reply: that one may have been served.
            Released released = reply.value() != null || wasUnanswered ? Released.YES : Released.NOT_HELD;
            then.accept(new Result(isKnown ? released : null, isKnown ? null : Reply.foreign(network.server())));
        } else if (error.isPassing() && Clock.plus(Clock.now(), pause.peek()) < end) {
            network.loop().execute(() -> network.loop().after(pause.take(Clock.NEVER), this::send));
        } else if (error instanceof WrongTypeException) {
            // The key holds something else by now.
            then.accept(new Result(Released.NOT_HELD, null));
        } else {
            network.counts().releasesFailed.increment();
            then.accept(new Result(null, error));
        }
    }
}
