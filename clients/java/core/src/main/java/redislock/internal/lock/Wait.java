package redislock.internal.lock;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.function.BiConsumer;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.NoSemaphoreException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.net.Cmd;
import redislock.internal.net.Errors;
import redislock.internal.net.Lines;
import redislock.internal.net.Link;
import redislock.internal.net.Message;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/**
 * A request that is sent until it is granted: of a lock, a semaphore or a latch.
 *
 * <p>It is sent once without waiting, unless the last one for the same had to wait. If it is not granted then, it is
 * sent with {@code BLOCK} and {@code NOTIFY}: the server queues it and publishes a message when it is granted. A
 * message proves nothing, so the request is sent once more without waiting; {@code ONCE} makes that safe. When a
 * connection breaks the {@linkplain Lines line} of the wait subscribes again and has it ask again; the server keeps its
 * place for a while.
 *
 * <p>Except for the first request, everything happens on the client's thread.
 */
final class Wait implements Lines.Waiter {
    /** The longest time for which the server keeps a wait. It is asked for again before, so this bounds how long that
     * of a process that has died stays. */
    private static final long LONGEST = 30_000 * Clock.MILLI;

    /** How long after the end of a wait the message about it may come. */
    private static final long LATE_MESSAGE = 100 * Clock.MILLI;

    private static final Set<String> MOVED = Set.of("MOVED", "ASK");

    private final Network network;
    private final Loop loop;
    private final Link link;
    private final Request request;
    private final long end;
    private final Listener listener;
    private final Pause pause = new Pause();
    private Lines.Ticket ticket;
    private Loop.Timer endTimer;
    private Loop.Timer timer;
    /** The last request. */
    private volatile Flight flight;
    /** Whether the server has answered: from then on the wait outlives breaks. */
    private boolean isAnswered;
    /** Whether a request was sent and has no reply. It is only ever set, by several threads. */
    private volatile boolean isUnanswered;
    /** Whether it is in the queue of the server, as far as is known. */
    private boolean isQueued;
    /** Whether a request with this wait may be in the queue of the server. */
    private boolean mayBeQueued;
    /** Whether a message has said that it is granted, and no reply since. */
    private boolean isAnnounced;
    private Message early;
    /** Why the last request that was not answered has failed. */
    private LockException lastError;
    private boolean isAgain;
    private boolean isAskedFor;
    /** Since when the server says that it is a replica; zero: it does not. */
    private long replicaSince;
    private boolean isCounted;
    private volatile boolean isOver;

    /**
     * The request and its limits.
     *
     * @param key      the first key
     * @param command  without {@code BLOCK}. Sent twice, it is granted once
     * @param certain  how long after its request was sent a grant is usable
     * @param isSingle whether it is for one key: of several, one that is granted late may hold a part
     * @param mustExist whether it is for a semaphore that it does not create
     * @param queue     with how many waiting requests it does not wait, or null
     */
    record Request(byte[] key, Cmd command, long certain, boolean isSingle, boolean mustExist, Integer queue) {}

    /** The tokens, and a moment before their request was sent. */
    record Grant(long[] tokens, Moment sent) {}

    /** A request, and whether its outcome has been handled: until then it may be a grant. */
    private static final class Flight {
        volatile Link.Request request;
        volatile boolean isOver;
    }

    /** Receives the end of a wait once. */
    interface Listener {
        /** A grant, on any thread that must not be blocked; an error; or neither when it was not granted in time. */
        void ended(Grant grant, LockException error);

        /** What the owner holds must be given up before it asks again. */
        void restart();
    }

    Wait(Network network, Link link, Request request, long end, Listener listener) {
        this.network = network;
        this.loop = network.loop();
        this.link = link;
        this.request = request;
        this.end = end;
        this.listener = listener;
    }

    /** Sends the first request, from any thread. A usable grant needs no other thread. */
    void first() {
        send(request.command(), (sent, result) -> {
            Grant grant = sent.elapsed() < request.certain() ? granted(sent, result) : null;
            if (grant != null) {
                listener.ended(grant, null);
            } else {
                loop.execute(() -> answered(sent, result, false));
            }
        });
    }

    /** The same on the client's thread, with the request that waits if the line is subscribed. */
    void firstInQueue() {
        if (network.lines().isLive(request.key())) {
            waitInQueue();
        } else {
            first();
        }
    }

    private static Grant granted(Moment sent, Link.Result result) {
        try {
            boolean isReply = result.error() == null && !Reply.isQueued(result.value());
            long[] tokens = isReply ? Reply.granted(result.value(), "") : null;
            return tokens == null ? null : new Grant(tokens, sent);
        } catch (LockException foreign) {
            return null;
        }
    }

    private void send(Cmd command, BiConsumer<Moment, Link.Result> then) {
        Moment sent = Moment.now();
        Flight mine = new Flight();
        flight = mine;
        mine.request = link.call(command, network.patience() / 2, network.patience(), result -> {
            if (result.isUnanswered()) {
                isUnanswered = true;
            }
            then.accept(sent, result);
        });
    }

    private boolean isAsking() {
        return flight != null && !flight.isOver;
    }

    /** Sends the request without waiting. */
    private void askAtOnce() {
        if (!isOver) {
            send(request.command(), (sent, result) -> loop.execute(() -> answered(sent, result, false)));
        }
    }

    /** Waits in the queue of the server. */
    @Override
    public boolean ask() {
        if (isOver || isAsking()) {
            return false;
        }
        cancelTimer();
        isQueued = false;
        mayBeQueued = true;
        early = null;
        // One millisecond more than is left, so that the server does not end the wait before its end.
        long block = Math.min(Clock.plus(Clock.left(end), Clock.MILLI), LONGEST);
        Cmd waiting = ticket.waiting(request.command(), block);
        send(request.queue() == null ? waiting : waiting.with("QUEUE", request.queue()),
                (sent, result) -> loop.execute(() -> answered(sent, result, true)));
        return true;
    }

    private void answered(Moment sent, Link.Result result, boolean isTicket) {
        if (isOver) {
            return;
        }
        flight.isOver = true;
        if (result.error() != null) {
            failed(result.error(), result.isUnanswered());
            return;
        }
        isAnswered = true;
        replicaSince = 0;
        if (Reply.isQueued(result.value())) {
            queued();
            unlessMissing(() -> {});
            return;
        }
        long[] tokens;
        try {
            tokens = Reply.granted(result.value(), network.server());
        } catch (LockException foreign) {
            listener.ended(null, foreign);
            return;
        }
        if (tokens == null) {
            unlessMissing(() -> notGranted(isTicket));
        } else if (sent.elapsed() < request.certain()) {
            listener.ended(new Grant(tokens, sent), null);
        } else if (isAtEnd() && isAgain) {
            isUnanswered = true;
            listener.ended(null, null);
        } else {
            // The reply took longer than the usable part of the lease.
            isAgain = true;
            isUnanswered = true;
            if (request.isSingle()) {
                askAtOnce();
            } else {
                listener.restart();
            }
        }
    }

    /**
     * Ends it where nobody has created the semaphore: a wait for it might never end. That is asked for once, because a
     * wait goes on when a semaphore is deleted and created again. A user that may not ask waits, too.
     */
    private void unlessMissing(Runnable then) {
        if (!request.mustExist() || isAskedFor) {
            then.run();
            return;
        }
        isAskedFor = true;
        link.callOnLoop(Cmd.of("EXISTS", new Cmd.Key(request.key())), network.patience() / 2, found -> {
            if (isOver) {
                return;
            }
            if (Long.valueOf(0).equals(found.value())) {
                listener.ended(null, new NoSemaphoreException(
                        network.server(), new String(request.key(), StandardCharsets.UTF_8)));
            } else {
                then.run();
            }
        });
    }

    private void notGranted(boolean isTicket) {
        if (isAnnounced && !request.isSingle()) {
            // The grant has ended at some of several keys, perhaps not at all of them.
            listener.restart();
        } else if (isAtEnd()) {
            listener.ended(null, null);
        } else if (isTicket) {
            // A replica ignores NOTIFY.
            setTimer(pause.take(Clock.NEVER), this::askAtOnce);
        } else {
            isAnnounced = false;
            waitInQueue();
        }
    }

    private void waitInQueue() {
        waitForEnd();
        file();
        ticket.ask();
    }

    private void queued() {
        if (!ticket.isQueued()) {
            return;
        }
        isQueued = true;
        isAgain = false;
        count();
        pause.reset();
        if (early != null) {
            told(early);
            return;
        }
        // Spread, because many waits may have started at the same moment.
        setTimer(LONGEST / 2 + Pause.partOf(LONGEST / 4), ticket::ask);
    }

    @Override
    public void told(Message message) {
        if (isOver) {
            return;
        }
        if (!isQueued) {
            // It may be about the request before this one: the reply decides first.
            early = message;
            return;
        }
        isQueued = false;
        cancelTimer();
        switch (message.kind()) {
            case GRANTED -> {
                isAnnounced = true;
                askAtOnce();
            }
            case TIMED_OUT -> {
                if (isAtEnd() || Clock.left(end) < Clock.MILLI) {
                    mayBeQueued = false;
                    listener.ended(null, null);
                } else {
                    ticket.ask();
                }
            }
            default -> {
                LockException error =
                        RefusedException.of(network.server(), message.code(), "the wait has failed");
                failed(error, false);
            }
        }
    }

    @Override
    public void refused(LockException error) {
        if (!isOver) {
            listener.ended(null, error);
        }
    }

    private void failed(LockException error, boolean wasSent) {
        String code = Errors.code(error);
        if (code.equals("NOSUBSCRIBER")) {
            isAnswered = true;
            ticket.broken(new LockConnectionException(
                    network.server(), "the server knows of no subscription of this client", null));
            return;
        }
        boolean isRefusal = !code.isEmpty();
        // The first answer: a request that was refused is in no queue.
        mayBeQueued &= (isAnswered || !isRefusal) && !code.equals("QUEUEFULL");
        boolean isHopeless = code.equals("READONLY") ? isReplicaForGood()
                : !isAnswered && !isRefusal && (!wasSent || isAgain);
        isAnswered |= isRefusal;
        if (!error.isPassing() || isHopeless || isAtEnd() && isAgain) {
            listener.ended(null, error);
            return;
        }
        // After a broken connection there is a second attempt, however short the wait.
        isAgain = true;
        lastError = error;
        if (link != network.link() && (!isRefusal || MOVED.contains(code))) {
            listener.restart();
        } else if (isAtEnd()) {
            askAtOnce();
        } else if (isRefusal || !isAnswered) {
            waitForEnd();
            if (isRefusal) {
                network.lines().refused(error);
            }
            setTimer(pause.take(Clock.NEVER), this::askAtOnce);
        } else {
            waitForEnd();
            file();
            ticket.broken(error);
        }
    }

    /**
     * Whether a replica ends the wait. Each request asks for the primary through a new connection: for the response
     * timeout, unless there is no other server to ask; with a place in a queue for as long as that may be kept.
     */
    private boolean isReplicaForGood() {
        long now = Clock.now();
        if (replicaSince == 0) {
            replicaSince = now;
        }
        return now - replicaSince >= (mayBeQueued ? LONGEST : network.isSingle() ? 0 : network.patience());
    }

    private void file() {
        if (ticket == null) {
            ticket = network.lines().file(request.key(), this);
        }
    }

    private boolean isAtEnd() {
        return Clock.left(end) == 0;
    }

    private void waitForEnd() {
        if (endTimer == null && end != Clock.NEVER) {
            endTimer = loop.at(end, this::atEnd);
        }
    }

    /** A request in flight is awaited beyond the end, and the message of the server that the wait is over. */
    private void atEnd() {
        if (isOver || isAsking()) {
            return;
        }
        if (isQueued) {
            endTimer = loop.after(LATE_MESSAGE, this::askSilentServer);
        } else {
            listener.ended(null, ticket != null ? ticket.cause() : lastError);
        }
    }

    /** "Not granted" would mean that another owner holds the lock, which a server that hangs has not said. */
    private void askSilentServer() {
        if (!isOver && !isAsking() && isQueued) {
            isQueued = false;
            cancelTimer();
            askAtOnce();
        }
    }

    private void setTimer(long span, Runnable task) {
        cancelTimer();
        timer = loop.after(span, () -> {
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

    /** Whether it has waited in the queue. */
    boolean hasWaited() {
        return isCounted;
    }

    /** Whether a request of it was sent and has no reply. */
    boolean isUnanswered() {
        return isUnanswered;
    }

    /**
     * Stops it. Returns whether a request of it may still be served or wait. To be called on the client's thread.
     */
    boolean stop() {
        if (isOver) {
            return isUnanswered || mayBeQueued;
        }
        isOver = true;
        cancelTimer();
        if (endTimer != null) {
            endTimer.cancel();
        }
        if (isAsking()) {
            // Its outcome, perhaps a grant, is not awaited.
            Link.Request present = flight.request;
            if (present != null) {
                present.abandon();
            }
            // Another thread is sending it at this moment if it is not known yet.
            if (present == null || present.wasSent()) {
                isUnanswered = true;
            }
        }
        if (ticket != null) {
            ticket.close();
        }
        if (isCounted) {
            network.counts().waiting.decrementAndGet();
        }
        return isUnanswered || mayBeQueued;
    }

    /** The ticket of a latch has no owner that could release it: the same request with the shortest limit takes it
     * over. */
    void expire() {
        if (ticket != null) {
            link.call(ticket.waiting(request.command(), 0), network.patience() / 2, unused -> {});
        }
    }
}
