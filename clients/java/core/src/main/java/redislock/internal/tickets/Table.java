package redislock.internal.tickets;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import redislock.internal.Clock;
import redislock.internal.tickets.Ticket.State;

/**
 * The open tickets and their lines: what follows from a reply, a message, and the end of a subscription. No connections
 * and no clock here: the desk carries out what the table answers. A line is the set of tickets that share a channel:
 * those of a slot in a cluster, else all of a server.
 *
 * <p>A message that comes before the reply ends the ticket if it is a grant; any other one is kept until the reply is
 * read, because it may be about the request before this one.
 *
 * @param <R> the request of a ticket
 * @param <P> the evidence that a node takes no tickets
 */
public final class Table<R, P> {
    /** Subscriptions in a row after which the node still asks for one. */
    private static final int MAX_SUBSCRIPTIONS = 3;
    /** How long waits park after that. */
    private static final long PARKING_SPAN = 30_000 * Clock.MILLI;
    /** Time without a ticket after which a line ends its subscription. */
    static final long MAX_IDLE = 30_000 * Clock.MILLI;
    /** Codes of messages after which the same request may be served later, or by another node. */
    private static final Set<String> PASSING = Set.of("UNBLOCKED", "DRAINED", "MOVED", "CLUSTERDOWN");

    private final Map<Long, Ticket<R>> tickets = new HashMap<>();
    private final Map<Integer, Channel<P>> channels = new HashMap<>();
    private long lastNumber;

    /** Files a ticket, which is due, and returns its number. {@code name} makes the name of a new channel. */
    public long file(int line, R request, Supplier<byte[]> name, Consumer<Outcome> listener, long now) {
        long number = ++lastNumber;
        Channel<P> channel = channels.computeIfAbsent(line, unused -> new Channel<>(name.get(), now));
        channel.tickets.add(number);
        channel.due.add(number);
        tickets.put(number, new Ticket<>(line, request, listener));
        return number;
    }

    /** Asks again for a queued ticket, or for one that is over: it keeps its number and so its place in the order. */
    public void askAgain(long number) {
        Ticket<R> ticket = tickets.get(number);
        if (ticket != null && (ticket.state == State.OVER || ticket.state == State.QUEUED)) {
            makeDue(number, ticket);
        }
    }

    /** Removes a ticket whose wait is over. */
    public void remove(long number, long now) {
        Ticket<R> ticket = tickets.remove(number);
        Channel<P> channel = ticket == null ? null : channels.get(ticket.line);
        if (channel != null) {
            channel.tickets.remove(number);
            channel.due.remove(number);
            channel.used = now;
            dropUnused(ticket.line, channel);
        }
    }

    /** Whether the server has queued the ticket. */
    public boolean isQueued(long number) {
        Ticket<R> ticket = tickets.get(number);
        return ticket != null && ticket.state == State.QUEUED;
    }

    /** Whether the server may have the ticket in a queue, or may have granted it. */
    public boolean mayBeThere(long number) {
        Ticket<R> ticket = tickets.get(number);
        return ticket != null && ticket.isThere;
    }

    /** The channel of a ticket that the server may have, or may get; otherwise null. */
    public byte[] channelIfOpen(long number) {
        Ticket<R> ticket = tickets.get(number);
        boolean isOpen = ticket != null && (ticket.isThere || ticket.inFlight > 0);
        Channel<P> channel = isOpen ? channels.get(ticket.line) : null;
        return channel == null ? null : channel.name;
    }

    /** The time until which a request without a reply may be served, zero: none; {@code unread} for one under way. */
    public long underWayUntil(long number, long unread) {
        Ticket<R> ticket = tickets.get(number);
        return ticket == null ? 0 : Math.max(ticket.inFlight > 0 ? unread : 0, ticket.unansweredUntil);
    }

    /** The evidence for parking at this line, or null. */
    public P parking(int line, long now) {
        Channel<P> channel = channels.get(line);
        if (channel == null) {
            return null;
        }
        if (channel.parking != null && now >= channel.parkingEnd) {
            channel.parking = null;
        }
        return channel.parking;
    }

    /** The evidence is void. */
    public void endParking(int line) {
        Channel<P> channel = channels.get(line);
        if (channel != null) {
            channel.parking = null;
            channel.subscriptions = 0;
            dropUnused(line, channel);
        }
    }

    /** Whether the next request of the line is to be the only one until it is done with. */
    public boolean isAlone(int line) {
        Channel<P> channel = channels.get(line);
        return channel == null || channel.isAlone();
    }

    /** The next step of a line. */
    public Step<R> next(int line, long now) {
        Channel<P> channel = channels.get(line);
        if (channel == null || channel.isBusy) {
            return new Step.Done<>();
        }
        if (channel.due.isEmpty()) {
            dropUnused(line, channel);
            return new Step.Done<>();
        }
        if (now < channel.notBefore) {
            return new Step.Pause<>(channel.notBefore);
        }
        long number = channel.due.pollFirst();
        Ticket<R> ticket = tickets.get(number);
        ticket.state = State.ASKING;
        ticket.inFlight++;
        channel.isBusy = channel.isAlone();
        return new Step.Ask<>(number, line, ticket.request, channel.name, channel.isBusy, channel.epoch);
    }

    /** Handles the reply to a request. True: the line needs a subscription at the node that replied. */
    public boolean answered(Step.Ask<R> ask, Answer answer, long now) {
        Channel<P> channel = channels.get(ask.line());
        if (channel == null) {
            return false;
        }
        boolean wasDraining = channel.isDraining;
        channel.answered(answer, ask.epoch(), now);
        boolean wantsSubscription = false;
        if (channel.epoch == ask.epoch() && answer instanceof Answer.NoSubscriber) {
            wantsSubscription = channel.live == null;
            if (!wantsSubscription) {
                unsubscribed(ask.line(), channel);
            }
        }
        Ticket<R> ticket = tickets.get(ask.number());
        if (ticket == null) {
            return wantsSubscription;
        }
        ticket.inFlight--;
        boolean isGrant = answer instanceof Answer.Granted;
        if (ticket.state == State.OVER || ticket.state != State.ASKING && !isGrant) {
            // Over by a message; or asked again since, and the newer reply decides.
            return wantsSubscription;
        }
        Message early = ticket.early;
        ticket.early = null;
        wantsSubscription |= apply(ask, ticket, channel, answer, wasDraining);
        if (early != null) {
            message(early, now);
        }
        return wantsSubscription;
    }

    private boolean apply(
            Step.Ask<R> ask, Ticket<R> ticket, Channel<P> channel, Answer answer, boolean wasDraining) {
        long number = ask.number();
        if (answer instanceof Answer.Granted granted) {
            ticket.isThere = true;
            end(number, ticket, new Outcome.Granted(granted.tokens(), granted.sent()));
        } else if (answer instanceof Answer.Failed failed) {
            end(number, ticket, new Outcome.Failed(failed.error()));
        } else if (answer instanceof Answer.Unsupported || answer instanceof Answer.Busy && !wasDraining) {
            end(number, ticket, new Outcome.Park());
        } else if (answer instanceof Answer.Queued queued) {
            ticket.isThere = true;
            return queued(ask, ticket, channel, queued.node());
        } else {
            if (answer instanceof Answer.Later later && later.unansweredUntil() > 0) {
                ticket.unansweredUntil = Math.max(ticket.unansweredUntil, later.unansweredUntil());
                ticket.isThere = true;
            }
            makeDue(number, ticket);
        }
        return false;
    }

    /** The ticket is queued, if its message will be received. True: the line needs a subscription first. */
    private boolean queued(Step.Ask<R> ask, Ticket<R> ticket, Channel<P> channel, String node) {
        if (channel.epoch == ask.epoch() && channel.live != null && channel.live.node().equals(node)) {
            ticket.state = State.QUEUED;
            return false;
        }
        // The subscription is another one by now; or the server does not check for subscribers (PUBSUB renamed).
        makeDue(ask.number(), ticket);
        return channel.epoch == ask.epoch();
    }

    /** The request that was sent alone is done with, its subscription too. */
    public void done(Step.Ask<R> ask) {
        Channel<P> channel = channels.get(ask.line());
        if (channel != null && ask.isAlone()) {
            channel.isBusy = false;
        }
    }

    /** Whether another subscription may help. If not, the waits of the line park. */
    public boolean maySubscribe(int line) {
        Channel<P> channel = channels.get(line);
        return channel != null && channel.subscriptions < MAX_SUBSCRIPTIONS;
    }

    /** The channel is subscribed at this node through this connection. */
    public void subscribed(int line, String node, long number) {
        Channel<P> channel = channels.get(line);
        if (channel == null) {
            return;
        }
        channel.live = new Channel.Live(node, number);
        channel.epoch++;
        channel.subscriptions++;
        // What another node has queued would send its messages there.
        queuedAreDue(channel);
    }

    /** The node has not confirmed the subscription, or could not be reached for it. */
    public void notSubscribed(int line, boolean wasReached, long now) {
        Channel<P> channel = channels.get(line);
        if (channel != null) {
            channel.subscriptions += wasReached ? 1 : 0;
            channel.fail(now);
        }
    }

    /** The node takes no tickets: the waits of the line park, for a while or until the evidence is void. */
    public void park(int line, P evidence, boolean isForAWhile, long now) {
        Channel<P> channel = channels.get(line);
        if (channel == null) {
            return;
        }
        channel.parking = evidence;
        channel.parkingEnd = isForAWhile ? now + PARKING_SPAN : Clock.NEVER;
        channel.subscriptions = 0;
        List<Long> due = List.copyOf(channel.due);
        channel.due.clear();
        for (long number : due) {
            end(number, tickets.get(number), new Outcome.Park());
        }
    }

    /** A connection has ended: the lines that are due. */
    public List<Integer> closed(long number) {
        List<Integer> lines = new ArrayList<>();
        channels.forEach((line, channel) -> {
            if (channel.isOn(number)) {
                lines.add(line);
            }
        });
        lines.forEach(line -> unsubscribed(line, channels.get(line)));
        return lines;
    }

    /** The server has ended the subscription of this channel: its line, or null. */
    public Integer channelEnded(long number, byte[] name) {
        for (Map.Entry<Integer, Channel<P>> entry : channels.entrySet()) {
            Channel<P> channel = entry.getValue();
            if (channel.isOn(number) && Arrays.equals(channel.name, name)) {
                unsubscribed(entry.getKey(), channel);
                return entry.getKey();
            }
        }
        return null;
    }

    private void unsubscribed(int line, Channel<P> channel) {
        channel.live = null;
        channel.epoch++;
        queuedAreDue(channel);
        dropUnused(line, channel);
    }

    /** Handles a message and returns its line, which may be due; null for a number that is not filed. */
    public Integer message(Message message, long now) {
        long number = message.number();
        Ticket<R> ticket = tickets.get(number);
        if (ticket == null) {
            return null;
        }
        if (ticket.state == State.OVER) {
            return ticket.line;
        }
        if (message.kind() == Message.Kind.GRANTED) {
            ticket.isThere = true;
            end(number, ticket, new Outcome.Announced());
        } else if (ticket.state == State.ASKING) {
            ticket.early = message;
        } else if (message.kind() == Message.Kind.TIMED_OUT) {
            ticket.isThere = false;
            end(number, ticket, new Outcome.TimedOut());
        } else {
            ticket.isThere = false;
            failed(number, ticket, message.code(), now);
        }
        return ticket.line;
    }

    private void failed(long number, Ticket<R> ticket, String code, long now) {
        Channel<P> channel = channels.get(ticket.line);
        if (channel == null || !PASSING.contains(code)) {
            end(number, ticket, new Outcome.Refused(code));
            return;
        }
        channel.isDraining |= code.equals("DRAINED");
        channel.fail(now);
        makeDue(number, ticket);
    }

    /** What the keeper of this connection does next. */
    public Beat beat(long number, long now) {
        byte[] used = null;
        boolean isResting = false;
        List<Integer> unused = new ArrayList<>();
        for (Map.Entry<Integer, Channel<P>> entry : channels.entrySet()) {
            Channel<P> channel = entry.getValue();
            if (!channel.isOn(number)) {
                continue;
            }
            if (!channel.tickets.isEmpty()) {
                used = channel.name;
            } else if (now - channel.used >= MAX_IDLE) {
                unused.add(entry.getKey());
            } else {
                isResting = true;
            }
        }
        if (used == null) {
            return isResting ? new Beat.Rest() : new Beat.Close();
        }
        List<byte[]> names = new ArrayList<>();
        for (int line : unused) {
            Channel<P> channel = channels.get(line);
            names.add(channel.name);
            unsubscribed(line, channel);
        }
        return new Beat.Probe(used, names);
    }

    private void queuedAreDue(Channel<P> channel) {
        for (long number : channel.tickets) {
            Ticket<R> ticket = tickets.get(number);
            if (ticket.state == State.QUEUED) {
                ticket.state = State.DUE;
                channel.due.add(number);
            }
        }
    }

    private void makeDue(long number, Ticket<R> ticket) {
        Channel<P> channel = channels.get(ticket.line);
        if (channel != null) {
            ticket.state = State.DUE;
            channel.due.add(number);
        }
    }

    private void end(long number, Ticket<R> ticket, Outcome outcome) {
        ticket.state = State.OVER;
        Channel<P> channel = channels.get(ticket.line);
        if (channel != null) {
            channel.due.remove(number);
        }
        ticket.listener.accept(outcome);
    }

    /** Forgets a line that has neither tickets nor a subscription, and no evidence to remember. */
    private void dropUnused(int line, Channel<P> channel) {
        boolean isUsed =
                !channel.tickets.isEmpty() || channel.isBusy || channel.live != null || channel.parking != null;
        if (!isUsed) {
            channels.remove(line, channel);
        }
    }
}
