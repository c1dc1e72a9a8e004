package redislock.internal.lock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import redislock.LockConnectionException;
import redislock.internal.Clock;

/** An acquisition in progress: of one lock, or of several locks of one server in one request. */
public abstract class Acquisition implements Engine.Pending {
    /** How much longer than its limit a wait may last, for a pending reply. */
    public static final long OVERTIME = 250 * Clock.MILLI;

    final Engine engine;
    final long end;
    private final long startedAt = Clock.now();
    private final CompletableFuture<List<Hold>> result = new CompletableFuture<>();
    private final CompletableFuture<Void> undone = new CompletableFuture<>();

    Acquisition(Engine engine, long end) {
        this.engine = engine;
        this.end = end;
    }

    /** Acquires the locks of these terms, which agree in everything but key and margin, until {@code end}. */
    public static Acquisition start(List<Terms> terms, long end) {
        Terms first = terms.get(0);
        first.engine.checkOpen();
        Acquisition acquisition = first.isSession ? new SessionAttempt(first, end) : new Attempt(terms, end);
        first.engine.add(acquisition);
        // The end of the client may have ended it.
        if (!acquisition.result.isDone()) {
            acquisition.begin();
        }
        return acquisition;
    }

    /** Sends the first request. */
    abstract void begin();

    /** Ends it with an error, or with null: without one. A grant that was quicker is given back. */
    abstract void stop(RuntimeException why);

    @Override
    public void end(RuntimeException why) {
        stop(why);
    }

    /** Withdraws it: the result is no longer wanted. A grant that was quicker is given back. */
    public void cancel() {
        stop(null);
        // That grant has perhaps not become a hold yet.
        engine.background().begin();
        result.whenComplete((holds, error) -> {
            if (holds != null) {
                holds.forEach(Hold::close);
            }
            engine.background().end();
        });
    }

    /** The holds; null when they were not granted in time. It completes on a thread that must not be blocked. */
    public CompletableFuture<List<Hold>> result() {
        return result;
    }

    /** Completes when an acquisition that was not granted is withdrawn, as far as the server answers. */
    public CompletableFuture<Void> undone() {
        return undone;
    }

    /** The latest end of a wait. The first ones of a process have more time. */
    static long overtimeEnd(Engine engine, long end) {
        return Math.max(Clock.plus(end, OVERTIME), engine.network().coldUntil());
    }

    /** The error at the end of the time, without an answer. */
    RuntimeException noAnswer() {
        return new LockConnectionException(engine.network().name(), "no answer in time", null);
    }

    /** The error when the owner's name did not become free in time: an earlier request under it is not settled. */
    RuntimeException unsettled() {
        return new LockConnectionException(engine.network().name(),
                "no answer in time to an earlier request of the same owner", null);
    }

    void granted(List<Hold> holds, boolean hasWaited) {
        if (hasWaited) {
            Duration waited = Duration.ofNanos(Clock.now() - startedAt);
            engine.observe(observer -> observer.waited(waited));
        }
        engine.counts().acquisitions.add(holds.size());
        engine.remove(this);
        undone.complete(null);
        result.complete(holds);
    }

    void notGranted(RuntimeException error, boolean isCancelled, int locks) {
        if (!isCancelled) {
            (error == null ? engine.counts().acquisitionsRefused : engine.counts().acquisitionsFailed).add(locks);
        }
        engine.remove(this);
        if (error == null) {
            result.complete(null);
        } else {
            result.completeExceptionally(error);
        }
    }
}
