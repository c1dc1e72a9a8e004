package redislock.internal.lock;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import redislock.LockException;
import redislock.LostReason;
import redislock.RefusedException;
import redislock.WrongTypeException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.net.Errors;
import redislock.internal.net.Link;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/**
 * The lease of a hold: it is renewed after every third, and changed by the program, by one request at a time. When the
 * server replies that this grant is over, or refuses for good, the lock is lost at once. When it does not reply, the
 * request is repeated until the margin before the end of the lease that the server certainly has, counted from the
 * moment at which its request was sent; then the lock is lost too, because another owner may get it soon. That loss
 * waits for no reply.
 *
 * <p>All but the methods that read happens on the client's thread.
 */
final class Lease {
    /** Refusals that do not change before the lease ends. */
    private static final Set<String> FINAL = Set.of("WRONGTYPE", "LOCKTYPE", "NOPERM", "NOAUTH", "WRONGPASS");
    private static final long LONGEST_PAUSE = 500 * Clock.MILLI;

    private final Hold hold;
    private final Terms terms;
    private final Network network;
    private final Loop loop;
    /** The connection to which the hold is bound, or null. */
    private final Link bound;
    private final Deque<Change> changes = new ArrayDeque<>(2);
    /** The lease that renewals set. */
    private long length;
    /** The lease that the server certainly has. */
    private volatile Confirmed confirmed;
    /** The latest end of a lease that the server may have: a request that set it may have had no reply. */
    private volatile long latestEnd;
    private boolean isAsking;
    /** Whether it is told that the present renewal is late. */
    private boolean isLate;
    /** After a renewal that has failed: when it is repeated. */
    private long repeatAt;
    /** Until when a request without a reply may still be served, and set this lease. */
    private long unansweredUntil;
    private long unansweredLease;
    private boolean wasReplica;
    private volatile Loop.Timer timer;
    private volatile boolean isStopped;

    /** A lease in nanoseconds, which a request has set that was sent at this moment. */
    private record Confirmed(Moment sent, long lease) {
        long end() {
            return Clock.plus(sent.steady(), lease);
        }
    }

    /** A lease that the program sets. {@code isLast}: the hold ends with it, if the server sets it. */
    private static final class Change {
        final long lease;
        final boolean isLast;
        final CompletableFuture<Boolean> result = new CompletableFuture<>();
        final Pause pause = new Pause();
        /** Until when it is repeated; zero: it has not been sent yet. */
        long end;
        boolean isResting;

        Change(long lease, boolean isLast) {
            this.lease = lease;
            this.isLast = isLast;
        }
    }

    Lease(Hold hold, Terms terms, Moment sent, Link bound) {
        this.hold = hold;
        this.terms = terms;
        this.network = terms.engine().network();
        this.loop = network.loop();
        this.bound = bound;
        this.length = terms.lease();
        this.confirmed = new Confirmed(sent, length);
        this.latestEnd = confirmed.end();
    }

    /** Begins: from now on a loss may be reported. */
    void start() {
        arm(Clock.NEVER);
        if (bound != null) {
            bound.onEnded(() -> loop.execute(() -> hold.lose(LostReason.DISCONNECTED, "", "")));
        }
    }

    /** The time for which the lock is certainly held. */
    long left() {
        Confirmed last = confirmed;
        return Math.max(0, last.lease() - Clock.MILLI - last.sent().elapsed());
    }

    long latestEnd() {
        return latestEnd;
    }

    /** The lease for a renewal of now: zero of a session, the rest of one that is not renewed. */
    long present() {
        return bound != null ? 0 : terms.isFixed() ? left() : length;
    }

    /** Ends it on any thread. A request under way changes nothing any more. */
    void stop() {
        isStopped = true;
        Loop.Timer set = timer;
        if (set != null) {
            set.cancel();
        }
    }

    /** Closes the connection to which the hold was bound. */
    void close() {
        if (bound != null) {
            bound.close();
        }
    }

    /** Sets another lease. True: it is set; false: the lock is lost, or released. */
    CompletableFuture<Boolean> change(Duration newLease, boolean isLast) {
        Change change = new Change(Terms.checked(newLease), isLast);
        loop.execute(() -> {
            changes.add(change);
            step();
        });
        return terms.engine().answer(change.result);
    }

    /** The moment at which the loss is reported without a further confirmation. */
    private long reportedAt() {
        return Clock.plus(confirmed.sent().steady(), terms.reportedAfter(confirmed.lease()));
    }

    /** The moment of the next renewal. */
    private long dueAt() {
        return terms.isFixed() ? Clock.NEVER
                : Math.max(repeatAt, Clock.plus(confirmed.sent().steady(), confirmed.lease() / 3));
    }

    /** The moment at which a renewal is late: a third of the lease after it was due. */
    private long lateAt() {
        return isLate || terms.isFixed() ? Clock.NEVER
                : Clock.plus(confirmed.sent().steady(), confirmed.lease() / 3 * 2);
    }

    /** Until when a last lease waits: a renewal without a reply that is served behind it would set its own again. A
     * sixth of the lease is left to set it. */
    private long lastAt() {
        return Math.min(unansweredUntil, reportedAt() - confirmed.lease() / 6);
    }

    /** Sets the timer of the next step that time brings, or of this moment. */
    private void arm(long until) {
        if (timer != null) {
            timer.cancel();
        }
        long next = isAsking ? Clock.NEVER : until == Clock.NEVER ? dueAt() : until;
        timer = loop.at(Math.min(Math.min(reportedAt(), lateAt()), next), this::step);
        if (isStopped) {
            timer.cancel();
        }
    }

    private void step() {
        long now = Clock.now();
        if (!isStopped && now >= reportedAt()) {
            hold.lose(LostReason.UNCONFIRMED, "", "");
        }
        if (!isStopped && now >= lateAt()) {
            isLate = true;
            hold.late(now - confirmed.sent().steady() - confirmed.lease() / 3);
        }
        if (!isAsking && isStopped) {
            changes.forEach(change -> change.result.complete(false));
            changes.clear();
        }
        if (isStopped) {
            return;
        }
        Change next = changes.peek();
        long until = next != null && next.isLast && now < lastAt() ? lastAt() : Clock.NEVER;
        if (isAsking || until != Clock.NEVER) {
            arm(until);
            return;
        }
        if (next != null && !next.isResting) {
            ask(next, next.lease);
        } else if (now >= dueAt()) {
            hold.checkKeeper();
            ask(null, length);
        }
        arm(Clock.NEVER);
    }

    /** Sends the request of a change; null: of a renewal. */
    private void ask(Change change, long asked) {
        isAsking = true;
        Moment sent = Moment.now();
        Confirmed before = confirmed;
        // Until the reply comes the server may have either, and without a reply too.
        Confirmed set = new Confirmed(sent, asked);
        Confirmed during = set.end() < before.end() ? set : before;
        latestEnd = Math.max(latestEnd, Clock.plus(set.end(), network.patience()));
        if (change != null && change.end == 0) {
            change.end = Clock.plus(Clock.now(), network.patience());
        }
        // The end of a last lease is no loss.
        if (change == null || !change.isLast) {
            confirmed = during;
        }
        Link link = bound != null && change == null ? bound : network.link();
        // A change leaves time for the renewal that is due meanwhile.
        long most = change == null ? before.lease() / 6 : terms.isFixed() ? Clock.NEVER : before.lease() / 3;
        long longest = Math.max(Clock.MILLI, Math.min(network.patience(), most));
        link.call(hold.claim().renew(link == bound ? 0 : asked, hold.token()),
                Math.min(longest, network.patience() / 2), longest, reply -> loop.execute(() -> {
                    isAsking = false;
                    if (reply.isUnanswered()) {
                        confirmed = during;
                        unanswered(asked);
                    } else if (reply.error() != null) {
                        confirmed = before;
                    }
                    if (change == null) {
                        renewed(sent, reply);
                    } else {
                        changed(change, sent, reply);
                    }
                    step();
                }));
    }

    /** A request that sets this lease (zero: that of a session) has no reply, and may still be served. */
    void unanswered(long asked) {
        long set = asked == 0 ? length : asked;
        unansweredLease = Clock.now() < unansweredUntil ? Math.min(unansweredLease, set) : set;
        unansweredUntil = Clock.now() + network.patience();
    }

    private void renewed(Moment sent, Link.Result reply) {
        LockException error = reply.error();
        if (isStopped) {
            return;
        }
        if (error == null && Long.valueOf(1).equals(reply.value())) {
            if (bound == null) {
                confirm(sent, length);
            } else {
                readLease(sent);
            }
        } else if (error == null && Long.valueOf(0).equals(reply.value())) {
            network.counts().renewalsFailed.increment();
            hold.lose(LostReason.TAKEN, "", "");
        } else if (error instanceof RefusedException refused && isFinal(refused)) {
            network.counts().renewalsFailed.increment();
            hold.lose(LostReason.REFUSED, refused.code(), refused.text());
        } else {
            repeat();
        }
    }

    private void repeat() {
        network.counts().renewalsFailed.increment();
        repeatAt = Clock.now() + Math.max(Clock.MILLI, Math.min(length / 20, LONGEST_PAUSE));
    }

    /** {@code READONLY} is repeated through a new connection, because the address may lead to another server by now.
     * Without cluster or sentinels the second such reply is final. */
    private boolean isFinal(RefusedException refused) {
        if (refused.code().equals("READONLY")) {
            boolean isSecond = wasReplica && network.isSingle();
            wasReplica = true;
            return isSecond;
        }
        return FINAL.contains(refused.code());
    }

    /** The request that was sent then has set this lease. */
    private void confirm(Moment sent, long set) {
        network.counts().renewals.increment();
        isLate = false;
        wasReplica = false;
        // A late request could still set its lease.
        boolean isCertain = sent.steady() >= unansweredUntil;
        confirmed = new Confirmed(sent, isCertain ? set : Math.min(unansweredLease, set));
        if (isCertain) {
            latestEnd = confirmed.end();
        }
    }

    /** The lease of a bound hold is a setting of the server, which may have changed. */
    private void readLease(Moment renewed) {
        isAsking = true;
        long patience = network.patience() / 2;
        terms.engine().sessions().leaseLeft(bound, hold.claim(), renewed, patience,
                (left, at, error) -> loop.execute(() -> {
            isAsking = false;
            if (isStopped) {
                return;
            }
            if (error != null) {
                repeat();
            } else if (left == null) {
                hold.lose(LostReason.TAKEN, "", "");
            } else {
                network.counts().renewals.increment();
                isLate = false;
                confirmed = new Confirmed(at.before(Math.max(0, length - left)), length);
            }
            step();
        }));
    }

    private void changed(Change change, Moment sent, Link.Result reply) {
        LockException error = reply.error();
        if (error != null && Errors.isPassing(error) && !isStopped
                && Clock.now() + change.pause.peek() < change.end) {
            change.isResting = true;
            loop.after(change.pause.take(Clock.NEVER), () -> {
                change.isResting = false;
                step();
            });
            return;
        }
        changes.remove(change);
        if (error instanceof WrongTypeException overwritten) {
            hold.lose(LostReason.REFUSED, overwritten.code(), overwritten.text());
            change.result.complete(false);
        } else if (error != null) {
            change.result.completeExceptionally(error);
        } else if (Long.valueOf(1).equals(reply.value())) {
            length = change.lease;
            if (change.isLast) {
                hold.left();
            } else if (!isStopped) {
                confirm(sent, change.lease);
            }
            change.result.complete(change.isLast || hold.loss() == null);
        } else if (Long.valueOf(0).equals(reply.value())) {
            hold.lose(LostReason.TAKEN, "", "");
            change.result.complete(false);
        } else {
            change.result.completeExceptionally(Reply.foreign(network.server()));
        }
    }
}
