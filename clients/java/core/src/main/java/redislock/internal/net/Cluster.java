package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.Partitions;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import redislock.LockConnectionException;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;

/** A cluster: Lettuce knows the nodes and slots, follows redirections and opens its connections again. */
final class Cluster extends Transport {
    /** The shortest time between two looks at the nodes. */
    private static final long LOOK = 200 * Clock.MILLI;

    private final Counts counts;
    private final RedisClusterClient client;
    /** Resources to end with the client, or null. */
    private final ClientResources own;
    private final Opened<StatefulRedisClusterPubSubConnection<byte[], byte[]>> subscriber;
    private final AtomicLong looked = new AtomicLong();
    private volatile RedisConnectionStateListener listener;

    Cluster(Address address, String name, Duration patience, Loop loop, Counts counts, RedisClusterClient client,
            ClientResources own) {
        super(address, name);
        this.counts = counts;
        this.client = client;
        this.own = own;
        this.subscriber = new Opened<>(server(), loop, Clock.nanos(patience), () -> client.refreshPartitionsAsync()
                .thenCompose(
                unused -> client.connectPubSubAsync(ByteArrayCodec.INSTANCE)), true);
    }

    @Override
    boolean isCluster() {
        return true;
    }

    @Override
    boolean isSingle() {
        return false;
    }

    private CompletionStage<StatefulRedisClusterConnection<byte[], byte[]>> open() {
        return client.refreshPartitionsAsync()
                .thenCompose(unused -> client.connectAsync(ByteArrayCodec.INSTANCE))
                .whenComplete((connection, failure) -> {
                    if (failure == null) {
                        counts.connections.increment();
                    }
                });
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connect() {
        return open().thenApply(connection -> connection);
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connectAlone(int slot) {
        return open().thenCompose(connection -> {
            RedisClusterNode node = node(connection.getPartitions(), slot);
            return connection.getConnectionAsync(node.getUri().getHost(), node.getUri().getPort())
                    .whenComplete((alone, failure) -> {
                        if (failure != null) {
                            Opened.end(connection);
                        } else {
                            alone.addListener(new RedisConnectionStateListener() {
                                @Override
                                public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                                    Opened.end(connection);
                                }
                            });
                        }
                    });
        }).thenApply(connection -> connection);
    }

    private RedisClusterNode node(Partitions partitions, int slot) {
        RedisClusterNode node = partitions.getPartitionBySlot(slot);
        if (node == null) {
            throw new LockConnectionException(server(), "no node serves the slot " + slot, null);
        }
        return node;
    }

    @Override
    CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot) {
        return subscriber.get().thenCompose(connection -> {
            RedisClusterNode node = node(connection.getPartitions(), slot);
            return connection.getConnectionAsync(node.getUri().getHost(), node.getUri().getPort());
        });
    }

    /** Lettuce opens the connection to a node again; one that is silent is closed with those to the other nodes. */
    @Override
    void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        subscriber.get().thenAccept(subscriber::drop);
    }

    @Override
    void refresh() {
        long last = looked.get();
        if (Clock.now() - last > LOOK && looked.compareAndSet(last, Clock.now())) {
            client.refreshPartitionsAsync();
        }
    }

    @Override
    void onDisconnected(Runnable action) {
        listener = new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                action.run();
            }
        };
        client.addListener(listener);
    }

    @Override
    void close() {
        if (isForeign()) {
            subscriber.close();
        }
        if (listener != null) {
            client.removeListener(listener);
        }
        if (!isForeign()) {
            client.shutdownAsync(0, 2, TimeUnit.SECONDS).handle((unused, error) -> null).join();
            end(own);
        }
    }
}
