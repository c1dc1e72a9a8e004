package redislock.internal.lock;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Desk;
import redislock.internal.net.Errors;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;
import redislock.internal.tickets.Outcome;

/**
 * A request that waits in the server until it is granted: the wait of a lock, a semaphore or a latch.
 *
 * <p>It is sent once without waiting, on the shared connection. If it is not granted then, it waits as a ticket, which
 * needs no connection. Where the server takes no tickets it is parked, in {@link Slices}. The server keeps the place in
 * the queue ({@code lock.queue-grace}) between two slices and when a connection breaks: the same owner sends the
 * request again.
 *
 * <p>The way of a wait: {@link #first}; then, until the end, {@link #resume} handles each reply and {@link #next} sends
 * the request again: as a ticket ({@link #waitForTicket}, {@link #ticketEnded}), or parked ({@link #sendSlice}, {@link
 * #pollSlices}). Its user calls {@link #stop} and {@link #closeSlices} when it has ended.
 *
 * <p>Except for the first request, it is used on the client's thread alone.
 */
final class Wait {
    /** How long a grant waits for the reply to the other slice, and after the end of a wait the message about it. */
    private static final long LATE = 100 * Clock.MILLI;
    /** The longest time for which the server keeps a ticket. It is asked for again before, so this bounds how long the
     * ticket of a process that has died stays. */
    private static final long LONGEST_TICKET = 30_000 * Clock.MILLI;

    private final Network network;
    private final Loop loop;
    private final Request request;
    private final long end;
    private final Listener listener;
    /** For the requests that do not wait. */
    private final Caller quick;
    private final Slices slices;
    private final Pause pause = new Pause();
    private final Deque<Slices.Answer> answers = new ArrayDeque<>();
    private Desk.Handle ticket;
    private Loop.Timer timer;
    /** Until when a request without a reply may still be served; zero: there is none. */
    private long underWayUntil;
    /** Requests that failed or were granted too late. */
    private int failures;
    /** Whether the outcome of a request of {@link #quick} is not handled yet: it may be a grant. */
    private volatile boolean isAsking;
    /** Whether it has waited in the queue, and is counted in the statistics. */
    private boolean isCounted;
    private boolean isOver;
    /** Whether a grant that was not usable may have ended at some of several keys only. */
    private boolean mayHoldSome;
    private Stage stage = Stage.ASKING;
    /** The grant of {@link Stage#FINISHING}. */
    private Grant finished;

    private enum Stage {
        /** A request that does not wait is sent, or will be after a pause. */
        ASKING,
        /** A ticket is filed. */
        TICKET,
        /** Slices are parked. */
        PARKED,
        /** It is granted; the reply to another slice is awaited for a moment. */
        FINISHING
    }

    /**
     * The request and its limits.
     *
     * @param key          the first key
     * @param command      without {@code BLOCK}, which is appended. Sent twice, it is granted once
     * @param longestSlice the longest time for which one slice is parked
     * @param certain      how long after its request was sent a grant is usable
     * @param hasOwner     false for a request that grants nothing (a latch)
     * @param isNamed      whether other processes may use the owner's name
     * @param giveBack     for several keys: releases what the owner holds of them, then runs its argument on the
     *                     client's thread. Null: one key
     */
    record Request(byte[] key, Cmd command, long longestSlice, long certain, boolean hasOwner, boolean isNamed,
            Consumer<Runnable> giveBack) {
        long longestTicket() {
            // A process that uses the name too takes the ticket over without a message.
            return isNamed ? longestSlice : LONGEST_TICKET;
        }
    }

    /** The tokens, and a moment before their request was sent. */
    record Grant(long[] tokens, Moment sent) {}

    /** The reply to a request: a grant, nil (both null), or an error. */
    record Asked(Moment sent, long[] tokens, LockException error) {}

    /** Receives the end of a wait once: a grant, an error, or neither when it was not granted in time. */
    interface Listener {
        void ended(Grant grant, LockException error);
    }

    Wait(Network network, Request request, long end, Listener listener) {
        this.network = network;
        this.loop = network.loop();
        this.request = request;
        this.end = end;
        this.listener = listener;
        this.quick = Caller.shared(network, request.key());
        this.slices = new Slices(network, request.key(), this::sliceAnswered);
    }

    /** Sends the first request from any thread. The reply comes on a thread that must not be blocked; if it is not a
     * {@linkplain #isUsable usable} grant, {@link #resume} continues with it. */
    void first(Consumer<Asked> then) {
        Moment sent = Moment.now();
        isAsking = true;
        quick.call(request.command(), network.patience() / 2, reply -> then.accept(read(sent, reply)));
    }

    /** The grant in the reply to the first request is taken. */
    void taken() {
        isAsking = false;
    }

    /** Whether the reply is a grant that came within the usable part of the lease. */
    boolean isUsable(Asked asked) {
        return asked.tokens() != null && asked.sent().elapsed() < request.certain();
    }

    private Asked read(Moment sent, Caller.Result reply) {
        if (reply.error() != null) {
            return new Asked(sent, null, reply.error());
        }
        try {
            return new Asked(sent, Reply.granted(reply.value(), network.name()), null);
        } catch (LockException foreign) {
            return new Asked(sent, null, foreign);
        }
    }

    /** Continues with the reply to a request, until a grant, a failure, or the end of the wait. */
    void resume(Asked asked) {
        if (isOver) {
            return;
        }
        stage = Stage.ASKING;
        isAsking = false;
        if (quick.wasUnanswered()) {
            underWayUntil = Clock.now() + network.patience();
        }
        if (isUsable(asked)) {
            finish(new Grant(asked.tokens(), asked.sent()));
        } else if (asked.tokens() != null) {
            grantedTooLate();
        } else if (asked.error() != null) {
            failed(asked.error());
        } else {
            notGranted();
        }
    }

    /** The reply took longer than the usable part of the lease, so the grant may be over. The request is repeated, or
     * the owner of this wait withdraws it. */
    private void grantedTooLate() {
        mayHoldSome = true;
        underWayUntil = Clock.now() + network.patience();
        if (failures++ > 0 && isAtEnd()) {
            ended(null, null);
        } else {
            next(0);
        }
    }

    private void failed(LockException error) {
        // After a broken connection there is a second attempt, however short the wait.
        if (!error.isPassing() || failures > 0 && isAtEnd()) {
            ended(null, error);
        } else {
            failures++;
            next(pause.take(Math.max(Clock.left(end), Pause.FIRST)));
        }
    }

    private void notGranted() {
        if (mayHoldSome && request.giveBack() != null) {
            // A request for several keys holds all of them or none while it waits.
            mayHoldSome = false;
            request.giveBack().accept(() -> {
                if (!isOver) {
                    next(0);
                }
            });
        } else if (isAtEnd()) {
            ended(null, null);
        } else if (Clock.now() < slices.nextDue()) {
            // Ended early, because another process waits under the same owner name: a pause before the next request.
            next(pause.take(Clock.left(end)));
        } else {
            pause.reset();
            next(0);
        }
    }

    private boolean isAtEnd() {
        return Clock.left(end) == 0;
    }

    /** Sends the request once more after its refusal. */
    void askAgain() {
        if (!isOver) {
            next(0);
        }
    }

    /** Sends the request again after a pause: to wait, or at the end of the wait once more without waiting. */
    private void next(long rest) {
        if (rest > 0) {
            setTimer(Clock.now() + rest, () -> next(0));
        } else if (isAtEnd()) {
            tryOnce();
        } else {
            await();
        }
    }

    /** Sends the request without waiting. */
    private void tryOnce() {
        Moment sent = Moment.now();
        isAsking = true;
        quick.callOnLoop(request.command(), network.patience() / 2, reply -> resume(read(sent, reply)));
    }

    /** Waits in the queue. */
    private void await() {
        if (areSlicesDone() && file()) {
            stage = Stage.TICKET;
            waitForTicket();
        } else {
            park();
        }
    }

    /** Files a ticket, or asks again for the one that is filed. False where the server takes none. */
    private boolean file() {
        if (ticket != null) {
            ticket.askAgain();
            return true;
        }
        Desk desk = network.desk();
        if (desk == null) {
            return false;
        }
        ticket = desk.file(
                new Desk.Request(request.key(), request.command(), request.longestTicket(), end), this::ticketEnded);
        if (ticket != null) {
            count();
        }
        return ticket != null;
    }

    private void waitForTicket() {
        long longest = request.longestTicket();
        // Spread, because many waits may have started at the same moment.
        long due = Clock.now() + longest / 2 + Pause.partOf(longest / 4);
        if (end < due) {
            setTimer(end, this::ticketIsLate);
        } else {
            setTimer(due, () -> {
                ticket.askAgain();
                waitForTicket();
            });
        }
    }

    /** The wait is over, but the message about it may be under way. */
    private void ticketIsLate() {
        if (ticket.isQueued()) {
            setTimer(Clock.plus(end, LATE), this::tryOnceAsked);
        } else {
            tryOnceAsked();
        }
    }

    private void tryOnceAsked() {
        stage = Stage.ASKING;
        tryOnce();
    }

    private void ticketEnded(Outcome outcome) {
        if (isOver || stage != Stage.TICKET) {
            return;
        }
        stage = Stage.ASKING;
        cancelTimer();
        Moment now = Moment.now();
        boolean isOpen = !request.hasOwner()
                && (outcome instanceof Outcome.Granted || outcome instanceof Outcome.Announced);
        if (isOpen) {
            // The latch is open: the server has no ticket any more.
            dropTicket();
            resume(new Asked(now, new long[] {1}, null));
        } else if (outcome instanceof Outcome.Granted granted) {
            resume(new Asked(granted.sent(), granted.tokens(), null));
        } else if (outcome instanceof Outcome.Announced) {
            // A message proves nothing, and may be old: the lease counts from a request.
            mayHoldSome = true;
            tryOnce();
        } else if (outcome instanceof Outcome.TimedOut) {
            resume(new Asked(now, null, null));
        } else if (outcome instanceof Outcome.Failed failed) {
            resume(new Asked(now, null, known(failed.error())));
        } else if (outcome instanceof Outcome.Refused refused) {
            resume(new Asked(now, null, RefusedException.of(network.name(), refused.code(), "the wait has failed")));
        } else {
            underWayUntil = Math.max(underWayUntil, ticket.underWayUntil());
            dropTicket();
            park();
        }
    }

    private LockException known(RuntimeException error) {
        return error instanceof LockException known ? known : new LockException(network.name(), "failed", error);
    }

    /** Waits with a connection. */
    private void park() {
        stage = Stage.PARKED;
        if (areSlicesDone()) {
            sendSlice();
        }
        pollSlices();
    }

    /** Whether every slice is answered, and every answer handled. */
    private boolean areSlicesDone() {
        return slices.size() == 0 && answers.isEmpty();
    }

    private void sendSlice() {
        long length = Math.max(Clock.MILLI, Math.min(request.longestSlice(), Clock.left(end)));
        count();
        slices.send(request.command().with("BLOCK", Claim.millis(length)), length);
    }

    /** Whether the newest slice lasts until the end of the wait. */
    private boolean isLastSlice() {
        return end <= slices.lastEnd();
    }

    private void sliceAnswered(Slices.Answer answer) {
        if (isOver) {
            return;
        }
        answers.add(answer);
        if (stage == Stage.PARKED) {
            pollSlices();
        } else if (stage == Stage.FINISHING && slices.size() == 0) {
            ended(finished, null);
        }
    }

    /** Handles the answers of slices, and sends the next one when it is due. */
    private void pollSlices() {
        cancelTimer();
        while (!answers.isEmpty()) {
            Slices.Answer answer = answers.poll();
            boolean isLast = areSlicesDone() || isLastSlice() && answer.isNewest();
            Asked asked = read(answer.sent(), answer.result());
            boolean isNil = asked.tokens() == null && asked.error() == null;
            boolean isPassing = asked.error() != null && Errors.isPassing(asked.error());
            if (isLast || !isNil && !isPassing) {
                resume(asked);
                return;
            }
            // Another slice has taken over the place, or is still parked.
        }
        if (!isLastSlice() && slices.size() < 2) {
            setTimer(slices.nextDue(), () -> {
                sendSlice();
                pollSlices();
            });
        }
    }

    /** Waits a moment for the reply to another slice, which would otherwise be served later. */
    private void finish(Grant grant) {
        if (slices.size() == 0) {
            ended(grant, null);
            return;
        }
        finished = grant;
        stage = Stage.FINISHING;
        setTimer(Clock.now() + LATE, () -> ended(finished, null));
    }

    private void ended(Grant grant, LockException error) {
        if (!isOver) {
            cancelTimer();
            listener.ended(grant, error);
        }
    }

    private void setTimer(long moment, Runnable task) {
        cancelTimer();
        timer = loop.at(moment, () -> {
            if (!isOver) {
                task.run();
            }
        });
    }

    private void cancelTimer() {
        if (timer != null) {
            timer.cancel();
            timer = null;
        }
    }

    private void count() {
        if (!isCounted) {
            isCounted = true;
            network.counts().waits.increment();
            network.counts().waiting.incrementAndGet();
        }
    }

    private void dropTicket() {
        if (ticket != null) {
            ticket.close();
            ticket = null;
        }
    }

    /** Whether the request was queued, so that the server may keep a place in the queue for it. */
    boolean wasQueued() {
        return isCounted;
    }

    /** Whether the server may have a ticket of the request, or may have granted it. */
    boolean hasTicket() {
        return ticket != null && ticket.mayBeThere();
    }

    /** Stops. Returns until when an abandoned request may still be served; zero: there is none. The slices stay open
     * until {@link #closeSlices}, because closing them leaves a place in the queue, which a release withdraws. */
    long stop() {
        isOver = true;
        slices.abandon();
        cancelTimer();
        quick.abandon();
        // The outcome of the last request was not awaited, or has not reached this thread yet.
        if (quick.wasUnanswered() || isAsking) {
            underWayUntil = Clock.now() + network.patience();
        }
        long until = Math.max(underWayUntil, slices.underWayUntil());
        if (ticket != null) {
            until = Math.max(until, ticket.underWayUntil());
            if (!request.hasOwner()) {
                ticket.expire();
            }
            dropTicket();
        }
        if (isCounted) {
            network.counts().waiting.decrementAndGet();
        }
        return until;
    }

    void closeSlices() {
        slices.close();
    }
}
