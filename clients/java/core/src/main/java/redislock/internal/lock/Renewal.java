package redislock.internal.lock;

import java.util.Set;
import java.util.concurrent.CompletableFuture;
import redislock.LockException;
import redislock.LostReason;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;

import redislock.internal.net.Errors;
import redislock.internal.net.Link;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/**
 * Renews a lock while it is held, after every third of the lease. When the server replies that this grant is over, or
 * refuses for good, the lock is lost at once. When it does not reply, the request is repeated until the margin before
 * the end of the lease, counted from the moment at which the last confirmed renewal was sent; then the lock is lost
 * too, because another owner may get it soon. The timer of that loss waits for no reply.
 */
final class Renewal {
    /** Refusals that do not change before the lease ends. */
    private static final Set<String> FINAL = Set.of("WRONGTYPE", "LOCKTYPE", "NOPERM", "NOAUTH", "WRONGPASS");
    private static final long LONGEST_PAUSE = 500 * Clock.MILLI;

    private final Hold hold;
    private final Network network;
    private final Loop loop;
    private final Sessions sessions;
    private final boolean isFixed;
    private final Link link;
    /** The connection to which the hold is bound, or null. */
    private final Link bound;
    /** The lease that requests set. */
    private volatile long lease;
    private volatile Loop.Timer timer;
    private volatile Loop.Timer lossTimer;
    private volatile boolean isStopped;
    /** Until when a renewal without a reply may still be served, and set its lease. */
    private long unansweredUntil;
    /** The lease that the program sets at present; zero: none. A renewal must not set the former one after it. */
    private long wanted;
    private boolean wasReplica;

    Renewal(Hold hold, Terms terms, Link bound) {
        this.hold = hold;
        this.network = terms.engine.network();
        this.loop = terms.engine.loop();
        this.sessions = terms.engine.sessions();
        this.isFixed = terms.isFixed;
        this.bound = bound;
        this.link = bound != null ? bound : network.link();
        this.lease = terms.lease;
        if (bound != null) {
            bound.onEnded(() -> loop.execute(() -> hold.lose(LostReason.DISCONNECTED, "", "")));
        }
    }

    /** Sets the timer of the next renewal, or of the end of a fixed lease. */
    void arm() {
        Hold.Confirmed last = hold.confirmed();
        if (isFixed) {
            setLossTimer();
        } else {
            setTimer(Clock.plus(last.sent().steady(), last.lease() / 3), this::due);
        }
    }

    /** Ends the timers. A request under way changes nothing any more. */
    void stop() {
        isStopped = true;
        cancel(timer);
        cancel(lossTimer);
    }

    /** Closes the connection to which the hold was bound. */
    void close() {
        if (bound != null) {
            bound.close();
        }
    }

    private void due() {
        if (isStopped) {
            return;
        }
        hold.checkKeeper();
        setLossTimer();
        ask();
    }

    private void ask() {
        if (isStopped) {
            return;
        }
        Moment sent = Moment.now();
        long asked = wanted != 0 ? wanted : lease;
        long patience = Math.min(network.patience(), Math.min(lease, asked) / 6);
        hold.ask(asked);
        link.callOnLoop(hold.claim().renew(bound != null ? 0 : asked, hold.token()), patience,
                reply -> answered(sent, asked, reply));
    }

    private void answered(Moment sent, long asked, Link.Result reply) {
        noteUnanswered(reply);
        if (isStopped) {
            return;
        }
        LockException error = reply.error();
        if (error == null && Long.valueOf(1).equals(reply.value())) {
            if (bound != null) {
                readLease(sent);
            } else {
                confirmed(sent, asked);
            }
            return;
        }
        network.counts().renewalsFailed.increment();
        if (error == null && Long.valueOf(0).equals(reply.value())) {
            hold.lose(LostReason.TAKEN, "", "");
            return;
        }
        if (error instanceof RefusedException refused && isFinal(refused)) {
            hold.lose(LostReason.REFUSED, refused.code(), refused.text());
            return;
        }
        repeat();
    }

    private void repeat() {
        setTimer(Clock.now() + Math.max(Clock.MILLI, Math.min(lease / 20, LONGEST_PAUSE)), this::ask);
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
    private void confirmed(Moment sent, long set) {
        network.counts().renewals.increment();
        wasReplica = false;
        cancel(lossTimer);
        // A late renewal could still set the former lease.
        long former = hold.confirmed().lease();
        boolean isCertain = sent.steady() >= unansweredUntil;
        hold.confirm(sent, isCertain ? set : Math.min(former, set));
        if (isCertain) {
            hold.settle();
        }
        arm();
    }

    /** The lease of a bound hold is a setting of the server, which may have changed. */
    private void readLease(Moment renewed) {
        long patience = network.patience() / 2;
        sessions.leaseLeft(link, hold.claim(), renewed, patience, (left, at, error) -> loop.execute(() -> {
            if (isStopped) {
                return;
            }
            if (error != null) {
                network.counts().renewalsFailed.increment();
                repeat();
            } else if (left == null) {
                hold.lose(LostReason.TAKEN, "", "");
            } else {
                network.counts().renewals.increment();
                cancel(lossTimer);
                hold.confirm(at.before(Math.max(0, lease - left)), lease);
                arm();
            }
        }));
    }

    /** Sets another lease. True: it is set; false: the lock is lost. */
    CompletableFuture<Boolean> renewTo(long newLease) {
        return change(newLease, false);
    }

    /** Sets the last lease, whose end is no loss. True: it is set; false: the lock is lost. */
    CompletableFuture<Boolean> leaveTo(long lastLease) {
        return change(lastLease, true);
    }

    private CompletableFuture<Boolean> change(long newLease, boolean isLast) {
        CompletableFuture<Boolean> result = new CompletableFuture<>();
        long end = Clock.plus(Clock.now(), network.patience());
        loop.execute(() -> new Change(newLease, isLast, end, result).send());
        return result;
    }

    /** A change of the lease by the program. */
    private final class Change {
        private final long newLease;
        /** Whether the hold ends with it, if the server sets it. */
        private final boolean isLast;
        private final long end;
        private final CompletableFuture<Boolean> result;
        private final Pause pause = new Pause();

        Change(long newLease, boolean isLast, long end, CompletableFuture<Boolean> result) {
            this.newLease = newLease;
            this.isLast = isLast;
            this.end = end;
            this.result = result;
        }

        void send() {
            if (hold.isOver()) {
                result.complete(false);
                return;
            }
            wanted = newLease;
            Moment sent = Moment.now();
            hold.ask(newLease);
            Hold.Confirmed before = hold.confirmed();
            Hold.Confirmed during = shorter(before, new Hold.Confirmed(sent, newLease));
            if (!isLast) {
                hold.confirm(during);
                rearm();
            }
            long patience = Math.max(Clock.MILLI, Math.min(network.patience() / 2, Clock.left(end)));
            network.link().callOnLoop(hold.claim().renew(newLease, hold.token()), patience, reply -> {
                boolean isUnanswered = noteUnanswered(reply);
                if (isUnanswered && isLast) {
                    hold.confirm(shorter(hold.confirmed(), during));
                    rearm();
                } else if (!isUnanswered && hold.confirmed() == during) {
                    hold.confirm(before);
                }
                answered(sent, reply);
            });
        }

        /** The lease that ends first: until the reply comes the server may have set either, and without a reply too. */
        private Hold.Confirmed shorter(Hold.Confirmed one, Hold.Confirmed other) {
            return other.end() < one.end() ? other : one;
        }

        private void answered(Moment sent, Link.Result reply) {
            LockException error = reply.error();
            if (error != null && Errors.isPassing(error) && Clock.now() + pause.peek() < end) {
                loop.after(pause.take(Clock.NEVER), this::send);
                return;
            }
            // Unless a later change is under way: a renewal must not set this lease after it.
            if (wanted == newLease) {
                wanted = 0;
            }
            if (error != null) {
                rearm();
                result.completeExceptionally(error);
            } else if (Long.valueOf(1).equals(reply.value())) {
                lease = newLease;
                if (!isStopped && !isLast) {
                    cancel(timer);
                    confirmed(sent, newLease);
                }
                result.complete(isLast || hold.loss() == null);
            } else if (Long.valueOf(0).equals(reply.value())) {
                hold.lose(LostReason.TAKEN, "", "");
                result.complete(false);
            } else {
                result.completeExceptionally(Reply.foreign(network.server()));
            }
        }
    }

    private boolean noteUnanswered(Link.Result reply) {
        boolean was = reply.isUnanswered();
        if (was) {
            unansweredUntil = Clock.now() + network.patience();
        }
        return was;
    }

    /** Sets the timers anew: the lease may end earlier or later than before. */
    private void rearm() {
        if (!isStopped) {
            cancel(timer);
            setLossTimer();
            arm();
        }
    }

    private void setLossTimer() {
        cancel(lossTimer);
        lossTimer = loop.at(hold.reportedAt(), this::lossDue);
        if (isStopped) {
            cancel(lossTimer);
        }
    }

    private void lossDue() {
        if (isStopped) {
            return;
        }
        if (Clock.now() < hold.reportedAt()) {
            setLossTimer();
        } else {
            hold.lose(LostReason.UNCONFIRMED, "", "");
        }
    }

    private void setTimer(long moment, Runnable task) {
        timer = loop.at(moment, task);
        if (isStopped) {
            cancel(timer);
        }
    }

    private static void cancel(Loop.Timer set) {
        if (set != null) {
            set.cancel();
        }
    }
}
