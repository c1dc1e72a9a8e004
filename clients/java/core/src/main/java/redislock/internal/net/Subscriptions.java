package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnectionImpl;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.tickets.Beat;
import redislock.internal.tickets.Message;

/** The subscribed connections of a client's lines: one for each node, in RESP3, probed while it has tickets. */
final class Subscriptions {
    /** The longest time between two probes of a connection. */
    private static final long LONGEST_BEAT = 5_000 * Clock.MILLI;

    private final Network network;
    private final Desk desk;
    private final Map<String, Subscription> nodes = new HashMap<>();
    private long lastNumber;

    /** The result of a subscription. */
    enum Outcome {
        /** Subscribed. */
        CONFIRMED,
        /** No connection could be opened, as for a parked wait. */
        NOT_REACHED,
        /** The node did not confirm it; a later attempt may succeed. */
        NOT_CONFIRMED,
        /** The node has no RESP3, or the user may not subscribe. */
        REFUSED
    }

    Subscriptions(Network network, Desk desk) {
        this.network = network;
        this.desk = desk;
    }

    /** A connection to a node. */
    private static final class Subscription {
        final long number;
        final String node;
        final List<Consumer<Outcome>> waiting = new ArrayList<>();
        /** Null until it is open. */
        StatefulRedisPubSubConnection<byte[], byte[]> link;

        Subscription(long number, String node) {
            this.number = number;
            this.node = node;
        }
    }

    /** Subscribes to the channel of a line at this node. */
    void subscribe(int line, byte[] channel, Node node, Consumer<Outcome> then) {
        Subscription known = nodes.get(node.name());
        if (known == null) {
            known = new Subscription(++lastNumber, node.name());
            nodes.put(node.name(), known);
            open(known, node);
        }
        Subscription subscription = known;
        Consumer<Outcome> opened = outcome -> {
            if (outcome == Outcome.CONFIRMED) {
                confirm(subscription, line, channel, then);
            } else {
                then.accept(outcome);
            }
        };
        if (subscription.link == null) {
            subscription.waiting.add(opened);
        } else {
            opened.accept(Outcome.CONFIRMED);
        }
    }

    private void open(Subscription subscription, Node node) {
        Loop loop = network.loop();
        network.connector().openSubscription(node, network.router().login())
                .whenComplete((link, failure) -> loop.execute(() -> opened(subscription, link)));
    }

    private void opened(Subscription subscription, StatefulRedisPubSubConnection<byte[], byte[]> link) {
        Outcome outcome = link == null ? Outcome.NOT_REACHED
                : isResp3(link) ? Outcome.CONFIRMED : Outcome.REFUSED;
        if (outcome == Outcome.CONFIRMED) {
            subscription.link = link;
            listen(subscription);
            network.loop().after(network.patience() / 2 + beat(), () -> keep(subscription));
        } else {
            nodes.remove(subscription.node, subscription);
            if (link != null) {
                link.closeAsync();
            }
        }
        List<Consumer<Outcome>> waiting = List.copyOf(subscription.waiting);
        subscription.waiting.clear();
        waiting.forEach(each -> each.accept(outcome));
    }

    /** In RESP2 a message could be taken for the reply to a probe. */
    private static boolean isResp3(StatefulRedisPubSubConnection<byte[], byte[]> link) {
        return link instanceof StatefulRedisPubSubConnectionImpl<?, ?> known
                && known.getConnectionState().getNegotiatedProtocolVersion() == ProtocolVersion.RESP3;
    }

    private void listen(Subscription subscription) {
        Loop loop = network.loop();
        subscription.link.addListener(new RedisPubSubAdapter<byte[], byte[]>() {
            @Override
            public void message(byte[] channel, byte[] payload) {
                Message message = Message.read(payload);
                if (message != null) {
                    loop.execute(() -> desk.message(message));
                }
            }

            @Override
            public void smessage(byte[] channel, byte[] payload) {
                message(channel, payload);
            }

            @Override
            public void unsubscribed(byte[] channel, long count) {
                loop.execute(() -> channelEnded(subscription, channel));
            }

            @Override
            public void sunsubscribed(byte[] channel, long count) {
                unsubscribed(channel, count);
            }
        });
        subscription.link.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
                loop.execute(() -> close(subscription));
            }
        });
        if (!subscription.link.isOpen()) {
            loop.execute(() -> close(subscription));
        }
    }

    private void channelEnded(Subscription subscription, byte[] channel) {
        Integer line = channel == null ? null : desk.table().channelEnded(subscription.number, channel);
        if (line != null) {
            desk.workOn(line);
        }
    }

    private void confirm(Subscription subscription, int line, byte[] channel, Consumer<Outcome> then) {
        send(subscription, line != Slots.NONE, channel, error -> {
            if (error == null && nodes.get(subscription.node) == subscription) {
                desk.table().subscribed(line, subscription.node, subscription.number);
                then.accept(Outcome.CONFIRMED);
            } else if (error == null) {
                // The connection has ended since.
                then.accept(Outcome.NOT_REACHED);
            } else if (error instanceof RefusedException refused) {
                // In a cluster the slot may be moving to another node.
                boolean isFinal = refused.code().equals("NOPERM") || refused.code().equals("ERR");
                then.accept(isFinal ? Outcome.REFUSED : Outcome.NOT_CONFIRMED);
            } else if (error.isPassing()) {
                close(subscription);
                then.accept(Outcome.NOT_CONFIRMED);
            } else {
                then.accept(Outcome.REFUSED);
            }
        });
    }

    /** Sends a subscription; {@code then} gets null when it is confirmed in time. */
    private void send(Subscription subscription, boolean isSharded, byte[] channel, Consumer<LockException> then) {
        Loop loop = network.loop();
        Deadline deadline = new Deadline(loop, Clock.plus(Clock.now(), network.patience() / 2),
                () -> then.accept(Errors.noAnswer(subscription.node)));
        CompletionStage<Void> sent = isSharded
                ? subscription.link.async().ssubscribe(channel)
                : subscription.link.async().subscribe(channel);
        sent.whenComplete((unused, failure) -> {
            if (deadline.isMet()) {
                LockException error = failure == null ? null : Errors.ofTransport(subscription.node, failure);
                loop.execute(() -> then.accept(error));
            }
        });
    }

    private long beat() {
        return Math.max(Clock.MILLI, Math.min(network.patience() / 4, LONGEST_BEAT));
    }

    /**
     * Probes a connection while it has tickets; closes it when it does not answer, or has had no ticket for a while.
     */
    private void keep(Subscription subscription) {
        if (nodes.get(subscription.node) != subscription) {
            return;
        }
        Beat beat = desk.table().beat(subscription.number, Clock.now());
        if (beat instanceof Beat.Close) {
            close(subscription);
        } else if (beat instanceof Beat.Probe probe) {
            for (byte[] unused : probe.unused()) {
                subscription.link.async().sunsubscribe(unused);
            }
            send(subscription, network.isCluster(), probe.channel(), error -> {
                // After MOVED the channel has left the node, with its slot.
                if (error == null || Errors.code(error).equals("MOVED")) {
                    network.loop().after(beat(), () -> keep(subscription));
                } else {
                    close(subscription);
                }
            });
        } else {
            network.loop().after(beat(), () -> keep(subscription));
        }
    }

    /** Closes a connection; its lines are due. */
    private void close(Subscription subscription) {
        if (!nodes.remove(subscription.node, subscription)) {
            return;
        }
        subscription.link.closeAsync();
        desk.table().closed(subscription.number).forEach(desk::workOn);
    }
}
