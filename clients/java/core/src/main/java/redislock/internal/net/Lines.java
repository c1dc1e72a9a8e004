package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Pause;

/**
 * The subscriptions through which waits learn of their end: one channel for a client, in a cluster one for each slot
 * with a wait. A line is such a channel with its waits. After a break it subscribes again and has each of its waits ask
 * again, in their order. All steps are on the client's thread.
 */
public final class Lines {
    /** How all names of channels begin. */
    private static final String PREFIX = "lock:tickets:";
    /** The longest time between two probes of a subscription. */
    private static final long LONGEST_BEAT = 5_000 * Clock.MILLI;
    /** Time without a wait after which a subscription ends. */
    private static final long MAX_IDLE = 30_000 * Clock.MILLI;
    /** A line that is cut off for so long is reported, and then in such intervals. */
    private static final long FIRST_WARNING = 3_000 * Clock.MILLI;
    private static final long NEXT_WARNING = 30_000 * Clock.MILLI;
    /** Outside a cluster. */
    private static final int NO_SLOT = -1;

    private final Network network;
    private final Loop loop;
    private final Map<Integer, Line> lines = new HashMap<>();
    private final Map<Long, Ticket> tickets = new HashMap<>();
    /** The connections that have the listeners of this object. */
    private final Set<StatefulRedisPubSubConnection<byte[], byte[]>> heard = new HashSet<>();
    private long lastNumber;
    /** The requests of waits are refused, and when one was refused last. */
    private final Outage refusals = new Outage();
    private long refusedAt;

    /** A wait. */
    public interface Waiter {
        /** The line is subscribed: sends the request of the wait. False: another one is in flight. */
        boolean ask();

        /** A message about the wait, which proves nothing. */
        void told(Message message);

        /** The server does not let this user subscribe. */
        void refused(LockException error);
    }

    Lines(Network network) {
        this.network = network;
        this.loop = network.loop();
    }

    /** The slot of a key in a cluster; without one all keys have the same line. */
    private int lineOf(byte[] key) {
        return network.isCluster() ? SlotHash.getSlot(key) : NO_SLOT;
    }

    /** Whether the line of this key is subscribed. */
    public boolean isLive(byte[] key) {
        Line line = lines.get(lineOf(key));
        return line != null && line.live != null;
    }

    /** Adds a wait. */
    public Ticket file(byte[] key, Waiter waiter) {
        Line line = lines.computeIfAbsent(lineOf(key), Line::new);
        Ticket ticket = new Ticket(line, ++lastNumber, waiter);
        line.tickets.put(ticket.number, ticket);
        tickets.put(ticket.number, ticket);
        return ticket;
    }

    /** A request of a wait was refused, for example with {@code MISCONF}, and is sent again: that is reported when it
     * lasts. */
    public void refused(LockException error) {
        if (Clock.now() - refusedAt > FIRST_WARNING) {
            refusals.end();
        }
        refusedAt = Clock.now();
        refusals.begin();
        refusals.warn("waits of this client have been refused by", error);
    }

    /** A time in which waits are not served. It is reported when it lasts. */
    private final class Outage {
        /** Zero: there is none. */
        private long since;
        private long warnedAt;

        void begin() {
            if (since == 0) {
                since = Clock.now();
                warnedAt = since - NEXT_WARNING + FIRST_WARNING;
            }
        }

        void end() {
            since = 0;
        }

        void warn(String what, LockException cause) {
            long now = Clock.now();
            if (now - warnedAt >= NEXT_WARNING) {
                warnedAt = now;
                network.log().log(System.Logger.Level.WARNING, "{0} {1} for {2} s, and go on trying: {3}", what,
                        network.name(), TimeUnit.NANOSECONDS.toSeconds(now - since), cause.getMessage());
            }
        }
    }

    /** A wait of a line. */
    public final class Ticket {
        private final Line line;
        private final long number;
        private final Waiter waiter;
        /** The epoch of the subscription under which it was last asked; zero: it is to be asked. */
        private long epoch;

        private Ticket(Line line, long number, Waiter waiter) {
            this.line = line;
            this.number = number;
            this.waiter = waiter;
        }

        /** The request that waits with this ticket, for this long. */
        public Cmd waiting(Cmd command, long nanos) {
            return command.with("BLOCK", Math.max(1, nanos / Clock.MILLI), "NOTIFY", line.channel, number);
        }

        /** Asks now, if the line is subscribed, or when it is. */
        public void ask() {
            if (line.live != null) {
                long asked = line.epoch;
                epoch = waiter.ask() ? asked : 0;
            } else {
                epoch = 0;
                line.start();
            }
        }

        /** The server has queued the request. False when the subscription has changed since: the wait asks again. */
        public boolean isQueued() {
            if (line.live != null && line.epoch == epoch) {
                line.isWell();
                return true;
            }
            ask();
            return false;
        }

        /** The request has failed, or the server knows of no subscription: the line subscribes again. */
        public void broken(LockException cause) {
            boolean isPresent = line.live != null && epoch == line.epoch;
            epoch = 0;
            if (isPresent) {
                line.broken(cause, true);
            } else {
                ask();
            }
        }

        /** The error for which the line is cut off; null: it is not. */
        public LockException cause() {
            return line.cause;
        }

        /** Ends the wait here; nothing is sent. */
        public void close() {
            line.tickets.remove(number);
            tickets.remove(number);
            line.used = Clock.now();
        }
    }

    /** A channel and its waits. */
    private final class Line {
        final int slot;
        final byte[] channel;
        final TreeMap<Long, Ticket> tickets = new TreeMap<>();
        final Pause pause = new Pause();
        /** Null: it is not subscribed. */
        StatefulRedisPubSubConnection<byte[], byte[]> live;
        /** Raised with each subscription. */
        long epoch;
        /** Whether it subscribes, or will do so after a pause. */
        boolean isSubscribing;
        boolean isResting;
        final Outage outage = new Outage();
        /** Why it is cut off; null: it is not. */
        LockException cause;
        /** When it last had a wait. */
        long used = Clock.now();

        Line(int slot) {
            this.slot = slot;
            String name = PREFIX + UUID.randomUUID();
            this.channel = (slot == NO_SLOT ? name : inSlot(name, slot)).getBytes(StandardCharsets.US_ASCII);
        }

        void start() {
            if (!isSubscribing) {
                isSubscribing = true;
                subscribe();
            }
        }

        private void subscribe() {
            CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> opening;
            try {
                opening = network.subscriber(slot);
            } catch (RuntimeException failure) {
                opening = CompletableFuture.failedFuture(failure);
            }
            within(opening, Clock.NEVER, (connection, failure) -> {
                if (failure != null) {
                    failed(failure);
                    return;
                }
                listen(connection);
                within(send(connection), network.patience() / 2, (unused, refused) -> {
                    if (refused == null && heard.contains(connection)) {
                        subscribed(connection);
                    } else {
                        if (Errors.isPassing(refused) && !(refused instanceof RefusedException)) {
                            network.dropSubscriber(connection);
                        }
                        failed(refused != null ? refused : Errors.noAnswer(network.server()));
                    }
                });
            });
        }

        private CompletionStage<Void> send(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
            return slot == NO_SLOT ? connection.async().subscribe(channel) : connection.async().ssubscribe(channel);
        }

        private void subscribed(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
            isSubscribing = false;
            live = connection;
            epoch++;
            beatLater(epoch);
            for (Ticket ticket : List.copyOf(tickets.values())) {
                // One of them may have found the subscription ended.
                if (live != null && ticket.epoch != epoch) {
                    ticket.ask();
                }
            }
        }

        private void failed(LockException error) {
            boolean isFinal = Set.of("NOPERM", "ERR").contains(Errors.code(error));
            if (isFinal || !error.isPassing() && !Set.of("MOVED", "ASK").contains(Errors.code(error))) {
                isSubscribing = false;
                List.copyOf(tickets.values()).forEach(ticket -> ticket.waiter.refused(error));
                return;
            }
            broken(error, false);
        }

        /** It is cut off. After a pause it subscribes again; {@code isElsewhere}: perhaps at another server. */
        void broken(LockException error, boolean isElsewhere) {
            cause = error;
            outage.begin();
            if (live != null && isElsewhere && !network.isCluster()) {
                network.dropSubscriber(live);
            }
            network.refresh();
            end();
            if (isResting) {
                return;
            }
            isSubscribing = true;
            isResting = true;
            loop.after(pause.take(Clock.NEVER), () -> {
                isResting = false;
                if (tickets.isEmpty()) {
                    isSubscribing = false;
                } else {
                    outage.warn(tickets.size() + " waits of this client have been cut off from", cause);
                    subscribe();
                }
            });
        }

        private void end() {
            live = null;
            epoch++;
        }

        void isWell() {
            outage.end();
            cause = null;
            pause.reset();
        }

        private void beatLater(long ofEpoch) {
            long beat = Math.max(Clock.MILLI, Math.min(network.patience() / 4, LONGEST_BEAT));
            loop.after(beat, () -> {
                if (live != null && epoch == ofEpoch) {
                    beat();
                }
            });
        }

        /** Subscribes once more, which needs no further permission, to see whether the connection lives. */
        private void beat() {
            StatefulRedisPubSubConnection<byte[], byte[]> connection = live;
            long ofEpoch = epoch;
            if (tickets.isEmpty()) {
                if (Clock.now() - used < MAX_IDLE) {
                    beatLater(epoch);
                } else if (network.isCluster()) {
                    lines.remove(slot);
                    connection.async().sunsubscribe(channel);
                } else {
                    end();
                    network.dropSubscriber(connection);
                }
                return;
            }
            within(send(connection), network.patience() / 2, (unused, failure) -> {
                if (live == null || epoch != ofEpoch) {
                    return;
                }
                if (failure == null) {
                    beatLater(ofEpoch);
                } else {
                    if (network.isCluster() && !(failure instanceof RefusedException)) {
                        network.dropSubscriber(connection);
                    }
                    broken(failure, true);
                }
            });
        }
    }

    /** The outcome on the client's thread, at most so much later. */
    private <T> void within(CompletionStage<T> stage, long longest, BiConsumer<T, LockException> then) {
        CompletableFuture<T> first = new CompletableFuture<>();
        Loop.Timer timer = loop.after(longest, () -> first.completeExceptionally(Errors.noAnswer(network.server())));
        stage.whenComplete((value, failure) -> {
            if (failure == null) {
                first.complete(value);
            } else {
                first.completeExceptionally(failure);
            }
        });
        first.whenComplete((value, failure) -> {
            timer.cancel();
            LockException error = failure == null ? null : Errors.ofTransport(network.server(), failure);
            loop.execute(() -> then.accept(value, error));
        });
    }

    private void listen(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        if (!heard.add(connection)) {
            return;
        }
        connection.addListener(new RedisPubSubAdapter<byte[], byte[]>() {
            @Override
            public void message(byte[] channel, byte[] payload) {
                Message message = Message.read(payload);
                if (message != null) {
                    loop.execute(() -> told(message));
                }
            }

            @Override
            public void smessage(byte[] channel, byte[] payload) {
                message(channel, payload);
            }

            @Override
            public void sunsubscribed(byte[] channel, long count) {
                loop.execute(() -> ended(connection, line -> Arrays.equals(line.channel, channel)));
            }
        });
        connection.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                loop.execute(() -> disconnected(connection));
            }
        });
        if (!connection.isOpen()) {
            disconnected(connection);
        }
    }

    private void disconnected(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        if (!network.isCluster()) {
            // In a cluster Lettuce opens it again.
            heard.remove(connection);
        }
        ended(connection, line -> true);
    }

    private void ended(StatefulRedisPubSubConnection<byte[], byte[]> connection,
            Predicate<Line> which) {
        for (Line line : new ArrayList<>(lines.values())) {
            if (line.live == connection && which.test(line)) {
                line.broken(Errors.ofTransport(network.server(),
                        new IOException("the subscription has ended")), false);
            }
        }
    }

    private void told(Message message) {
        Ticket ticket = tickets.get(message.number());
        if (ticket != null) {
            ticket.waiter.told(message);
        }
    }

    /** This name with a hash tag behind it, so that it is in this slot. Tries 16,384 tags on average. */
    private static String inSlot(String name, int slot) {
        int tag = 0;
        while (SlotHash.getSlot(Integer.toString(tag)) != slot) {
            tag++;
        }
        return name + ":{" + tag + "}";
    }
}
