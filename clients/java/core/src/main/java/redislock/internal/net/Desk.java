package redislock.internal.net;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.tickets.Answer;
import redislock.internal.tickets.Message;
import redislock.internal.tickets.Outcome;
import redislock.internal.tickets.Step;
import redislock.internal.tickets.Table;

/** Files the tickets of a client and sends their requests. Used on the client's thread alone. */
public final class Desk {
    /** Upper bound of requests that have no reply yet, besides one for each line. */
    private static final int MAX_IN_FLIGHT = 100;
    /** How all names of channels begin. */
    private static final String PREFIX = "lock:tickets:";
    /**
     * Codes of answers of a server that takes no tickets: a syntax error or {@code NOTIFY is turned off}, no permission
     * to publish, a cluster behind the address of one server. If the request itself is refused, the parked one is too.
     */
    private static final Set<String> UNSUPPORTED = Set.of("ERR", "NOPERM", "CROSSSLOT");

    private final Network network;
    /** The evidence for parking is the shared connection through which a node has refused tickets. */
    private final Table<Request, Shared> table = new Table<>();
    private final Subscriptions subscriptions;
    private final Map<Integer, Loop.Timer> pausing = new HashMap<>();
    /** Lines that have something to send when a request has been answered. */
    private final Set<Integer> crowded = new LinkedHashSet<>();
    private int inFlight;

    Desk(Network network) {
        this.network = network;
        this.subscriptions = new Subscriptions(network, this);
    }

    /**
     * The request of a ticket.
     *
     * @param key     its key
     * @param command without {@code BLOCK}, which is appended. Sent twice, it is granted once
     * @param longest the longest time for which the server keeps the ticket
     * @param end     the end of the wait
     */
    public record Request(byte[] key, Cmd command, long longest, long end) {}

    /** A filed ticket. */
    public final class Handle {
        private final Request request;
        private final long number;
        private final int line;

        private Handle(Request request, long number, int line) {
            this.request = request;
            this.number = number;
            this.line = line;
        }

        /** Asks again for a ticket that is queued, or over. */
        public void askAgain() {
            table.askAgain(number);
            workOn(line);
        }

        /** Whether the server has queued the ticket. */
        public boolean isQueued() {
            return table.isQueued(number);
        }

        /** Whether the server may have the ticket in a queue, or may have granted it. */
        public boolean mayBeThere() {
            return table.mayBeThere(number);
        }

        /** Until when a request without a reply may be served; zero: there is none. */
        public long underWayUntil() {
            return table.underWayUntil(number, Clock.now() + network.patience());
        }

        /** Withdraws a ticket without an owner: the same request with the shortest limit takes it over. Sent once. */
        public void expire() {
            byte[] channel = table.channelIfOpen(number);
            if (channel != null) {
                Cmd command = notified(request.command(), 1, channel, number);
                Caller.shared(network, request.key()).call(command, network.patience() / 2, unused -> {});
            }
        }

        /** Ends the wait here; nothing is sent. */
        public void close() {
            table.remove(number, Clock.now());
        }
    }

    /** Files a ticket, whose outcomes come later on this thread. Null where tickets have been refused. */
    public Handle file(Request request, Consumer<Outcome> listener) {
        int line = network.isCluster() ? Slots.of(request.key()) : Slots.NONE;
        long now = Clock.now();
        Shared evidence = table.parking(line, now);
        if (evidence != null) {
            if (network.router().isCurrent(evidence) && evidence.isOpen()) {
                return null;
            }
            table.endParking(line);
        }
        Loop loop = network.loop();
        Consumer<Outcome> later = outcome -> loop.execute(() -> listener.accept(outcome));
        long number = table.file(line, request, () -> channelName(line), later, now);
        workOn(line);
        return new Handle(request, number, line);
    }

    Table<Request, Shared> table() {
        return table;
    }

    void message(Message message) {
        Integer line = table.message(message, Clock.now());
        if (line != null) {
            workOn(line);
        }
    }

    /** Sends the requests of a line that are due and may be sent now. */
    void workOn(int line) {
        while (!pausing.containsKey(line)) {
            if (!table.isAlone(line) && inFlight >= MAX_IN_FLIGHT) {
                crowded.add(line);
                return;
            }
            Step<Request> step = table.next(line, Clock.now());
            if (step instanceof Step.Ask<Request> ask) {
                inFlight += ask.isAlone() ? 0 : 1;
                ask(ask);
            } else if (step instanceof Step.Pause<Request> pause) {
                pausing.put(line, network.loop().at(pause.until(), () -> {
                    pausing.remove(line);
                    workOn(line);
                }));
            } else {
                return;
            }
        }
    }

    private void ask(Step.Ask<Request> ask) {
        Request request = ask.request();
        Caller caller = Caller.shared(network, request.key());
        // One millisecond more than is left, so that the server does not end the wait before its end.
        long block = Math.min(Clock.plus(Clock.left(request.end()), Clock.MILLI), request.longest());
        Cmd command = notified(request.command(), block / Clock.MILLI, ask.channel(), ask.number());
        Moment sent = Moment.now();
        caller.callOnLoop(command, network.patience() / 2, result -> replied(ask, caller, sent, result));
    }

    private static Cmd notified(Cmd command, long millis, byte[] channel, long number) {
        return command.with("BLOCK", Math.max(1, millis), "NOTIFY", channel, number);
    }

    private void replied(Step.Ask<Request> ask, Caller caller, Moment sent, Caller.Result result) {
        long now = Clock.now();
        long unansweredUntil = caller.wasUnanswered() ? now + network.patience() : 0;
        Shared by = caller.answeredBy();
        Answer answer = answer(result, sent, by, unansweredUntil);
        boolean wantsSubscription = table.answered(ask, answer, now);
        if (by != null && answer instanceof Answer.Unsupported) {
            table.park(ask.line(), by, false, now);
        } else if (by != null && wantsSubscription) {
            subscribe(ask, by);
            return;
        }
        done(ask);
    }

    private Answer answer(Caller.Result result, Moment sent, Shared by, long unansweredUntil) {
        LockException error = result.error();
        if (error == null) {
            return value(result.value(), sent, by, unansweredUntil);
        }
        String code = Errors.code(error);
        if (code.equals("NOSUBSCRIBER")) {
            return new Answer.NoSubscriber();
        }
        if (code.equals("LOCKBUSY")) {
            return new Answer.Busy();
        }
        if (error.isPassing()) {
            return new Answer.Later(unansweredUntil);
        }
        return UNSUPPORTED.contains(code) ? new Answer.Unsupported() : new Answer.Failed(error);
    }

    private Answer value(Object value, Moment sent, Shared by, long unansweredUntil) {
        if (Reply.isQueued(value)) {
            return new Answer.Queued(by == null ? "" : by.node().name());
        }
        try {
            long[] tokens = Reply.granted(value, network.name());
            if (tokens != null) {
                return new Answer.Granted(tokens, sent);
            }
        } catch (LockException foreign) {
            return new Answer.Failed(foreign);
        }
        // A replica ignores NOTIFY. The next request looks for the primary.
        if (by != null) {
            network.router().forget(by);
        }
        return new Answer.Later(unansweredUntil);
    }

    private void subscribe(Step.Ask<Request> ask, Shared by) {
        int line = ask.line();
        if (!table.maySubscribe(line)) {
            table.park(line, by, true, Clock.now());
            done(ask);
            return;
        }
        subscriptions.subscribe(line, ask.channel(), by.node(), outcome -> {
            switch (outcome) {
                case CONFIRMED -> {}
                case NOT_REACHED -> table.notSubscribed(line, false, Clock.now());
                case NOT_CONFIRMED -> table.notSubscribed(line, true, Clock.now());
                case REFUSED -> table.park(line, by, false, Clock.now());
            }
            done(ask);
        });
    }

    private void done(Step.Ask<Request> ask) {
        table.done(ask);
        workOn(ask.line());
        if (ask.isAlone()) {
            return;
        }
        inFlight--;
        for (int line : Set.copyOf(crowded)) {
            if (inFlight < MAX_IN_FLIGHT && crowded.remove(line)) {
                workOn(line);
            }
        }
    }

    /** A name that no other process knows; of a line in a cluster, in its slot. */
    private static byte[] channelName(int line) {
        String name = PREFIX + UUID.randomUUID();
        return line == Slots.NONE ? name.getBytes(StandardCharsets.US_ASCII) : Slots.nameIn(name, line);
    }
}
