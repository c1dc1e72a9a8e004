package redislock.internal.lock;

import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import redislock.LockClosedException;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.lock.Undo.First;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/**
 * An acquisition of a hold that is bound to a connection ({@code SESSION}), on the client's thread.
 *
 * <p>It has a connection of its own, which carries the request and the wait and which the hold keeps. After a failure
 * an abandoned request may be served late, and would bind the hold of its owner to a closed connection. So the next
 * attempt has another owner; a named owner waits until the last request can no longer be served.
 */
final class SessionAttempt extends Acquisition {
    private final Terms terms;
    private final Network network;
    private final Loop loop;
    private final AtomicBoolean isOver = new AtomicBoolean();
    private final Pause pause = new Pause();
    private Claim claim;
    private Caller caller;
    private volatile Reservation reservation = Reservation.NONE;
    private volatile Reservation.Waiter reserving;
    private long underWayUntil;
    /** Whether the owner may hold the lock: a request had no reply, or the grant is not confirmed. */
    private boolean mayHold;
    /** Whether the outcome of a request for the hold is not handled yet: it may be a grant. */
    private boolean isAsking;
    private boolean isQueued;
    private int failures;
    private volatile Loop.Timer overtime;

    SessionAttempt(Terms terms, long end) {
        super(terms.engine, end);
        this.terms = terms;
        this.network = engine.network();
        this.loop = engine.loop();
        this.claim = terms.claimBy(terms.nextOwner());
        this.caller = Caller.waiting(network, claim.key());
    }

    @Override
    void begin() {
        reserve();
        if (end != Clock.NEVER) {
            overtime = loop.at(overtimeEnd(engine, end), () -> over(late(), false));
        }
    }

    /** The error at the end; null: another acquisition has the owner's name. */
    private RuntimeException late() {
        if (reserving == null) {
            return noAnswer();
        }
        return reserving.isForAnswer() ? unsettled() : null;
    }

    /** Enters the queue for a named owner at once, in this thread: before every acquisition that is made later. */
    private void reserve() {
        if (terms.owner == null) {
            loop.execute(() -> ask(0));
            return;
        }
        Reservation.Waiter waiter = new Reservation.Waiter(
                Reservation.nameOf(claim, engine), engine, reserved -> loop.execute(() -> {
                    reserving = null;
                    reservation = reserved;
                    if (isOver.get()) {
                        reserved.free();
                    } else {
                        ask(0);
                    }
                }));
        reserving = waiter;
        waiter.start();
        if (isOver.get()) {
            waiter.cancel();
        }
    }

    /** Sends the request, parked for this long. */
    private void ask(long slice) {
        if (isOver.get()) {
            return;
        }
        Cmd command = claim.start("LOCK.ACQUIRE", "SEM.ACQUIRE").with("SESSION", "ONCE", "SEQ", 1);
        if (slice > 0) {
            command = command.with("BLOCK", Claim.millis(slice));
            count();
        }
        long asked = Clock.now();
        isAsking = true;
        caller.callOnLoop(command, slice + network.patience() / 2, reply -> answered(slice, asked, reply));
    }

    private void count() {
        if (!isQueued) {
            isQueued = true;
            network.counts().waits.increment();
            network.counts().waiting.incrementAndGet();
        }
    }

    private void answered(long slice, long asked, Caller.Result reply) {
        if (isOver.get()) {
            return;
        }
        isAsking = false;
        LockException error = reply.error();
        long[] tokens = null;
        if (error == null) {
            try {
                tokens = Reply.granted(reply.value(), network.name());
            } catch (LockException foreign) {
                error = foreign;
            }
        }
        if (tokens != null) {
            bind(tokens[0]);
        } else if (error != null) {
            failed(error);
        } else if (Clock.left(end) == 0) {
            notHeld();
            over(null, false);
        } else if (slice > 0 && Clock.now() - asked < slice / 2) {
            // Ended early, because another process waits under the same owner name.
            loop.after(pause.take(Clock.left(end)), this::askParked);
        } else {
            notHeld();
            pause.reset();
            askParked();
        }
    }

    /** Another owner holds the lock, so this one does not, unless a request is served late. */
    private void notHeld() {
        mayHold = underWayUntil > Clock.now();
    }

    /** The server keeps the place in the queue from one slice to the next. */
    private void askParked() {
        ask(Math.max(Clock.MILLI, Math.min(Clock.left(end), network.patience() / 2)));
    }

    /**
     * Reads the lease that the server has set. An owner that held the lock before may have a longer one, which the
     * first renewal shortens.
     */
    private void bind(long token) {
        caller.pin();
        mayHold = true;
        long patience = network.patience() / 2;
        Moment sent = Moment.now();
        caller.callOnLoop(claim.renew(0, token), patience, renewed -> {
            if (isOver.get()) {
                return;
            }
            if (renewed.error() != null || !Long.valueOf(1).equals(renewed.value())) {
                // Broken meanwhile, or the connection has ended.
                failed(renewed.error() != null ? renewed.error() : Reply.foreign(network.name()));
                return;
            }
            engine.sessions().leaseLeft(caller, claim, sent, patience, (left, at, error) -> loop.execute(() -> {
                if (isOver.get()) {
                    return;
                }
                if (left == null) {
                    failed(error != null ? error : Reply.foreign(network.name()));
                } else {
                    granted(token, left, at);
                }
            }));
        });
    }

    private void granted(long token, long lease, Moment sent) {
        if (isOver.compareAndSet(false, true)) {
            uncount();
            cancelOvertime();
            noteUnanswered();
            Terms leased = terms.leased(lease);
            Hold.Leftovers leftovers = new Hold.Leftovers(underWayUntil, reservation);
            granted(List.of(new Hold(leased, claim, token, sent, leftovers, new Renewal.Bound(caller))), isQueued);
        }
    }

    private void failed(LockException error) {
        // After a broken connection there is a second attempt, however short the wait.
        if (!error.isPassing() || failures > 0 && Clock.left(end) == 0) {
            over(error, false);
            return;
        }
        failures++;
        noteUnanswered();
        if (caller.isBound()) {
            // Granted, but its lease could not be read.
            underWayUntil = Clock.now() + network.patience();
        }
        long rest = pause.take(Math.max(Clock.left(end), Pause.FIRST));
        if (underWayUntil > Clock.now() && reservation.isNamed()) {
            rest = Math.max(rest, underWayUntil - Clock.now());
            if (Clock.plus(Clock.now(), rest) > end) {
                over(error, false);
                return;
            }
        } else if (mayHold && !reservation.isNamed()) {
            undo(caller, First.EVERYTHING);
            claim = terms.claimBy(terms.nextOwner());
            underWayUntil = 0;
            mayHold = false;
        }
        caller.close();
        caller = Caller.waiting(network, claim.key());
        loop.after(rest, () -> ask(0));
    }

    @Override
    void stop(RuntimeException why) {
        over(why, why == null || why instanceof LockClosedException);
    }

    private void over(RuntimeException error, boolean isCancelled) {
        if (!isOver.compareAndSet(false, true)) {
            return;
        }
        reservation.settling();
        engine.background().begin();
        loop.execute(() -> {
            cancelOvertime();
            if (reserving != null) {
                reserving.cancel();
            }
            uncount();
            caller.abandon();
            noteUnanswered();
            // Without a connection, nothing was sent.
            mayHold |= isAsking && caller.nodeName() != null;
            boolean keepsPlace = isQueued && !reservation.isNamed();
            undo(caller, mayHold || keepsPlace ? First.EVERYTHING : First.NOTHING);
            engine.background().end();
        });
        notGranted(error, isCancelled, 1);
    }

    private void undo(Caller of, First covers) {
        new Undo(engine, claim, terms.lastsFor(terms.lease), covers, underWayUntil, 0, reservation, () -> {
            of.close();
            if (isOver.get()) {
                undone().complete(null);
            }
        }).start();
    }

    private void cancelOvertime() {
        Loop.Timer timer = overtime;
        if (timer != null) {
            timer.cancel();
        }
    }

    private void uncount() {
        if (isQueued) {
            network.counts().waiting.decrementAndGet();
        }
    }

    private void noteUnanswered() {
        if (caller.wasUnanswered()) {
            underWayUntil = Clock.now() + network.patience();
            mayHold = true;
        }
    }
}
