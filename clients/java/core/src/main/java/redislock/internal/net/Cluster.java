package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.models.partitions.Partitions;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import redislock.LockConnectionException;
import redislock.internal.Clock;

/** A cluster: Lettuce knows the nodes and slots, follows redirections and opens its connections again. */
final class Cluster extends Network {
    /** The shortest time between two looks at the nodes. */
    private static final long LOOK = 200 * Clock.MILLI;

    private final RedisClusterClient client;
    private final Opened<StatefulRedisClusterPubSubConnection<byte[], byte[]>> messages;
    private final AtomicLong looked = new AtomicLong();
    /** The connections of {@link #connectAlone}, each with the one to the cluster that it is a part of. */
    private final Map<StatefulConnection<byte[], byte[]>, StatefulConnection<byte[], byte[]>> parents =
            new ConcurrentHashMap<>();
    /** Lettuce repeats the open requests when one of its connections ends. */
    private final RedisConnectionStateListener listener = new RedisConnectionStateListener() {
        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
            link().disconnected();
        }
    };

    Cluster(Address address, String name, Duration patience, RedisClusterClient client, ClientResources own) {
        super(address, name, patience, client, own);
        this.client = client;
        this.messages = new Opened<>(
                this, () -> opened(() -> client.connectPubSubAsync(ByteArrayCodec.INSTANCE)), true);
        client.addListener(listener);
    }

    @Override
    public boolean isCluster() {
        return true;
    }

    @Override
    public boolean isSingle() {
        return false;
    }

    private CompletionStage<StatefulRedisClusterConnection<byte[], byte[]>> open() {
        return counted(opened(() -> client.connectAsync(ByteArrayCodec.INSTANCE)));
    }

    /** With the nodes that are known; that fails if none is. The look at them waits for each one. */
    private <C> CompletionStage<C> opened(Supplier<CompletableFuture<C>> opener) {
        return opener.get().exceptionallyCompose(failure -> isEnding() ? CompletableFuture.failedFuture(failure)
                : client.refreshPartitionsAsync().thenCompose(unused -> opener.get()));
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
                            super.end(connection);
                        } else {
                            parents.put(alone, connection);
                            alone.addListener(new RedisConnectionStateListener() {
                                @Override
                                public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                                    end(alone);
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
    Opened<?> messages() {
        return messages;
    }

    @Override
    CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot) {
        return messages.get().thenCompose(connection -> {
            RedisClusterNode node = node(connection.getPartitions(), slot);
            return connection.getConnectionAsync(node.getUri().getHost(), node.getUri().getPort());
        });
    }

    /** Lettuce opens the connection to a node again; one that is silent is closed with those to the other nodes. */
    @Override
    void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        messages.get().thenAccept(messages::drop);
    }

    @Override
    public String nodeOf(byte[] key) {
        RedisClusterNode node = client.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
        return node == null ? "" : node.getNodeId();
    }

    @Override
    public CompletionStage<?> lookForNodes() {
        return client.refreshPartitionsAsync();
    }

    @Override
    void refresh() {
        long last = looked.get();
        if (Clock.now() - last > LOOK && looked.compareAndSet(last, Clock.now())) {
            client.refreshPartitionsAsync();
        }
    }

    @Override
    public void close() {
        client.removeListener(listener);
        ended(CompletableFuture.allOf(
                parents.keySet().stream().map(this::end).toArray(CompletableFuture<?>[]::new)));
        super.close();
    }

    /** Lettuce warns of a part that is closed before the whole. */
    @Override
    CompletableFuture<Void> end(StatefulConnection<byte[], byte[]> connection) {
        StatefulConnection<byte[], byte[]> parent = parents.remove(connection);
        return super.end(parent != null ? parent : connection);
    }
}
