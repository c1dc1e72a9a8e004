package redislock.internal.lock;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.Mode;
import redislock.internal.Clock;
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
        /** The grant with the token. */
        GRANT,
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
    private final First first;
    private final Long token;
    /** Until when an abandoned acquire may still be served; zero: there is none. */
    private final long acquiresUntil;
    private final Runnable onReleased;
    private volatile long releasesUntil;
    private volatile Reservation reservation;

    /** {@code onReleased} runs after the first release: it closes the connections of a wait. Closed earlier, the server
     * would keep the place in the queue for a while. */
    Undo(Engine engine, Claim claim, long lastsFor, First first, Long token, long acquiresUntil, long releasesUntil,
            Reservation reservation, Runnable onReleased) {
        this.engine = engine;
        this.network = engine.network();
        this.claim = claim;
        this.lastsFor = lastsFor;
        this.first = first;
        this.token = token;
        this.acquiresUntil = acquiresUntil > Clock.now() ? acquiresUntil : 0;
        this.releasesUntil = releasesUntil;
        this.reservation = reservation;
        this.onReleased = onReleased;
    }

    /** Starts it, if anything is to be undone. The name is free when nothing of it can be served any more. */
    void start() {
        reservation.settling();
        if (first == First.NOTHING) {
            onReleased.run();
            endReservation();
            return;
        }
        engine.background().begin();
        release(first == First.GRANT ? token : null, error -> {
            // If nothing can have been granted, a refusal is that of the acquire again and is no failure.
            boolean mayHold = first == First.GRANT || first == First.TICKET || acquiresUntil > 0;
            if (error != null && (mayHold || error.isPassing())) {
                engine.background().fail(claim, error);
            }
            onReleased.run();
            endReservation();
            engine.background().end();
        });
    }

    private void release(Long ofToken, Consumer<LockException> then) {
        Release.send(engine, claim, reservation.isNamed(), ofToken, Clock.plus(Clock.now(), lastsFor), result -> {
            releasesUntil = Math.max(releasesUntil, result.underWayUntil());
            then.accept(result.error());
        });
    }

    /** Waits until no release can still be served, which would end the next hold under this name. */
    private void endReservation() {
        endReservation(this::undoLate);
    }

    private void endReservation(Runnable then) {
        if (reservation.isNamed() && releasesUntil > Clock.now()) {
            network.loop().at(releasesUntil, () -> {
                reservation.free();
                then.run();
            });
        } else {
            reservation.free();
            then.run();
        }
    }

    private void undoLate() {
        if (acquiresUntil > 0) {
            if (reservation.isNamed()) {
                engine.unsettled().add(this);
            }
            // The end of the client waits for the first of the two.
            engine.background().begin();
            network.loop().after(A_MOMENT, () -> releaseLate(engine.background()::end));
            network.loop().at(Math.max(acquiresUntil, Clock.now() + 2 * A_MOMENT), () -> releaseLate(() -> {
                if (reservation.isNamed()) {
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
        if (reservation.isNamed()) {
            // If another acquisition has the name meanwhile, the server counts the late request as that one's. The
            // release of an exclusive lock names no kind: it would end one for READ or WRITE, which excludes the other.
            boolean isShared = claim.kind().mode() == Mode.EXCLUSIVE
                    && (Reservation.isReserved(reservation.name(), Mode.READ)
                            || Reservation.isReserved(reservation.name(), Mode.WRITE));
            Reservation again = isShared ? null : Reservation.tryReserve(reservation.name(), engine);
            if (again == null) {
                then.run();
                return;
            }
            again.settling();
            reservation = again;
        }
        release(null, error -> {
            endReservation(() -> {});
            then.run();
        });
    }
}
