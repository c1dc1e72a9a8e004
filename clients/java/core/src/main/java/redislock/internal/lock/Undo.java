package redislock.internal.lock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;

/**
 * The undoing of an abandoned acquisition or hold, in the background.
 *
 * <p>A request whose connection was closed may still be in a buffer of the network, or of a server that is paused.
 * Served later, it takes a lock for an owner that no longer exists. So it is undone three times: at once, a moment
 * later, and when it can no longer be served.
 */
final class Undo implements Unsettled.Part {
    /** Time after which a server that is not paused has read a request that was sent. */
    private static final long A_MOMENT = 100 * Clock.MILLI;

    /** What the first release covers. */
    enum First {
        /** All holds and waits of the owner. */
        EVERYTHING,
        /** The same, and a ticket may have been granted. */
        TICKET,
        NOTHING
    }

    private final Engine engine;
    private final Network network;
    private final Claim claim;
    /** For how long a release without an answer is repeated. */
    private final long lastsFor;
    private First first;
    /** Until when a release that was sent before may be served; zero: there is none. */
    private final long releasesUntil;
    /** Until when an abandoned acquire may still be served; zero: there is none. */
    private long acquiresUntil;
    private final Runnable onReleased;
    private final ReentrantLock lock = new ReentrantLock();
    /** Of the owner's name, for the present releases. Changed with the lock. */
    private Reservation reservation;
    /** The releases that may still be served. The last one frees the name. Changed with the lock. */
    private int releases = 1;

    /** {@code onReleased} runs after the first release: it closes the connections of a wait. Closed earlier, the server
     * would keep the place in the queue for a while. */
    Undo(Engine engine, Claim claim, long lastsFor, First first, long acquiresUntil, long releasesUntil,
            Reservation reservation, Runnable onReleased) {
        this.engine = engine;
        this.network = engine.network();
        this.claim = claim;
        this.lastsFor = lastsFor;
        this.first = first;
        this.acquiresUntil = acquiresUntil > Clock.now() ? acquiresUntil : 0;
        this.releasesUntil = releasesUntil;
        this.reservation = reservation;
        this.onReleased = onReleased;
    }

    /** Starts it, if anything is to be undone. The name is free when nothing of it can be served any more. */
    void start() {
        reservation.settling();
        if ((first == First.EVERYTHING || first == First.TICKET) && reservation.hasOtherMode()) {
            // Undone later, if the owner has nothing in another mode by then.
            first = First.NOTHING;
            acquiresUntil = Math.max(acquiresUntil, Clock.now() + network.patience());
        }
        if (first == First.NOTHING) {
            onReleased.run();
            undoLate();
            releaseIsOver(releasesUntil);
            return;
        }
        engine.background().begin();
        release(reservation.isNamed(), result -> {
            LockException error = result.error();
            // If nothing can have been granted, a refusal is that of the acquire again and is no failure.
            boolean mayHold = first == First.TICKET || acquiresUntil > 0;
            if (error != null && (mayHold || error.isPassing())) {
                engine.background().fail(claim, error);
            }
            onReleased.run();
            undoLate();
            releaseIsOver(Math.max(releasesUntil, result.underWayUntil()));
            engine.background().end();
        });
    }

    private void release(boolean isNamed, Consumer<Release.Result> then) {
        Cmd command = isNamed ? claim.release(null) : claim.giveUp();
        Release.send(engine, claim, isNamed, command, Clock.plus(Clock.now(), lastsFor), then);
    }

    /** Frees the name when neither this release, which may be served until then, nor another one can be served: it
     * would end the next hold under this name. */
    private void releaseIsOver(long until) {
        if (reserved().isNamed() && until > Clock.now()) {
            network.loop().at(until, () -> releaseIsOver(0));
            return;
        }
        Reservation unused;
        lock.lock();
        try {
            unused = --releases == 0 ? reservation : Reservation.NONE;
        } finally {
            lock.unlock();
        }
        unused.free();
    }

    /** Keeps the name for a further release, or reserves it again. False if another acquisition has it, for which the
     * server takes the late request, or if the release would end something else of the owner. */
    private boolean mayRelease() {
        lock.lock();
        try {
            if (releases == 0 && reservation.isNamed()) {
                Reservation again = Reservation.tryReserveToUndo(reservation.name(), engine);
                if (again == null) {
                    return false;
                }
                reservation = again;
            } else if (reservation.hasOtherMode()) {
                return false;
            }
            releases++;
            return true;
        } finally {
            lock.unlock();
        }
    }

    private Reservation reserved() {
        lock.lock();
        try {
            return reservation;
        } finally {
            lock.unlock();
        }
    }

    private void undoLate() {
        if (acquiresUntil > 0) {
            boolean isNamed = reserved().isNamed();
            if (isNamed) {
                engine.unsettled().add(this);
            }
            // The end of the client waits for the first of the two.
            engine.background().begin();
            network.loop().after(A_MOMENT, () -> releaseLate(engine.background()::end));
            network.loop().at(Math.max(acquiresUntil, Clock.now() + 2 * A_MOMENT), () -> releaseLate(() -> {
                if (isNamed) {
                    engine.unsettled().remove(this);
                }
            }));
        }
    }

    @Override
    public byte[] owner() {
        return claim.owner();
    }

    /** The releases that are repeated are parts of their own. */
    @Override
    public CompletableFuture<?> hurry() {
        return null;
    }

    /** A request that was given up has perhaps been served since the last release. */
    @Override
    public CompletableFuture<?> settle() {
        CompletableFuture<Void> released = new CompletableFuture<>();
        releaseLate(() -> released.complete(null));
        return released;
    }

    private void releaseLate(Runnable then) {
        if (!mayRelease()) {
            then.run();
            return;
        }
        release(reserved().isNamed(), result -> {
            releaseIsOver(result.underWayUntil());
            then.run();
        });
    }
}
