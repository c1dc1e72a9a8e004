package redislock.internal.lock;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.Released;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Pause;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/** A release that is sent until it is answered, or until its end. */
final class Release implements Unsettled.Part {
    /**
     * The result.
     *
     * @param released       the answer, or null
     * @param error          why there is none, or null
     * @param underWayUntil  until when an unanswered one may still be served; zero: there is none
     */
    record Result(Released released, LockException error, long underWayUntil) {}

    private final Engine engine;
    private final Network network;
    private final Claim claim;
    private final boolean isNamed;
    private final Cmd command;
    private final Caller caller;
    private final long end;
    private final Consumer<Result> then;
    private final Pause pause = new Pause();
    private final CompletableFuture<Void> over = new CompletableFuture<>();
    private volatile long underWayUntil;
    /** Completes at the end of the present attempt; null: nothing waits for it. */
    private volatile CompletableFuture<Void> attempt;
    /** The timer of the next attempt, on the client's thread; null: none is waited for. */
    private Loop.Timer next;

    private Release(Engine engine, Claim claim, boolean isNamed, Cmd command, long end, Consumer<Result> then) {
        this.engine = engine;
        this.network = engine.network();
        this.claim = claim;
        this.isNamed = isNamed;
        this.command = command;
        this.caller = Caller.shared(network, claim.key());
        this.end = end;
        this.then = then;
    }

    /** Sends it at once; {@code isNamed}: the owner may make further requests. The result comes on a thread that must
     * not be blocked. */
    static void send(Engine engine, Claim claim, boolean isNamed, Cmd command, long end, Consumer<Result> then) {
        Release release = new Release(engine, claim, isNamed, command, end, then);
        if (isNamed) {
            engine.unsettled().add(release);
        }
        release.send();
    }

    @Override
    public byte[] owner() {
        return claim.owner();
    }

    @Override
    public CompletableFuture<?> hurry() {
        if (next == null) {
            // Sent already, so a request that follows on the same connection is served later.
            return null;
        }
        CompletableFuture<Void> ended = new CompletableFuture<>();
        attempt = ended;
        next.cancel();
        repeat();
        return ended;
    }

    @Override
    public CompletableFuture<?> settle() {
        hurry();
        return over;
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
            ended(new Result(isKnown ? released : null, isKnown ? null : Reply.foreign(network.name()), underWayUntil));
        } else if (error.isPassing() && Clock.plus(Clock.now(), pause.peek()) < end) {
            network.loop().execute(() -> next = network.loop().after(pause.take(Clock.NEVER), this::repeat));
        } else {
            network.counts().releasesFailed.increment();
            ended(new Result(null, error, underWayUntil));
        }
        CompletableFuture<Void> awaited = attempt;
        if (awaited != null) {
            awaited.complete(null);
        }
    }

    private void repeat() {
        next = null;
        send();
    }

    private void ended(Result result) {
        then.accept(result);
        if (isNamed) {
            engine.unsettled().remove(this);
        }
        over.complete(null);
    }
}
