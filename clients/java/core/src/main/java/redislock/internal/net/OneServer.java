package redislock.internal.net;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;

/** One server, or the primary that sentinels name: Lettuce asks them whenever it opens a connection. */
final class OneServer extends Transport {
    private final Counts counts;
    private final RedisClient client;
    /** Null: the client is the program's, which stays open, and has the address. */
    private final RedisURI uri;
    private final int database;
    private final Duration patience;
    /** Resources to end with the client, or null. */
    private final ClientResources own;
    private final AtomicInteger failures = new AtomicInteger();
    private final Opened<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber;

    OneServer(Address address, String name, int database, Duration patience, Loop loop, Counts counts,
            RedisClient client, ClientResources own) {
        super(address, name);
        this.counts = counts;
        this.client = client;
        this.uri = address == null ? null : address.uris().get(0);
        this.patience = patience;
        this.database = database;
        this.own = own;
        this.subscriber = new Opened<>(server(), loop, Clock.nanos(patience), () -> counted(uri == null
                ? inThread(() -> client.connectPubSub(ByteArrayCodec.INSTANCE))
                : client.connectPubSubAsync(ByteArrayCodec.INSTANCE, turned())), false);
    }

    @Override
    boolean isCluster() {
        return false;
    }

    @Override
    boolean isSingle() {
        return uri != null && uri.getSentinels().isEmpty();
    }

    /** The address; after a failure beginning with another sentinel, as the first one may know of no primary. */
    private RedisURI turned() {
        List<RedisURI> sentinels = new ArrayList<>(uri.getSentinels());
        Collections.rotate(sentinels, failures.get());
        return Network.prepared(uri, sentinels, patience);
    }

    /** The address of the program's client is known to the methods that block only. */
    private static <T> CompletionStage<T> inThread(Supplier<T> opener) {
        return CompletableFuture.supplyAsync(opener, task -> new Thread(task, "redis-lock-connect").start());
    }

    private <T> CompletionStage<T> counted(CompletionStage<T> opening) {
        return opening.whenComplete((connection, failure) -> {
            if (failure == null) {
                counts.connections.increment();
            } else {
                failures.incrementAndGet();
            }
        });
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connect() {
        return counted(uri == null ? inThread(() -> client.connect(ByteArrayCodec.INSTANCE))
                : client.connectAsync(ByteArrayCodec.INSTANCE, turned()))
                .thenCompose(connection -> database == 0 ? CompletableFuture.completedFuture(connection)
                        : connection.async().select(database).thenApply(selected -> connection));
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connectAlone(int slot) {
        return connect();
    }

    @Override
    CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot) {
        return subscriber.get();
    }

    @Override
    void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        subscriber.drop(connection);
    }

    @Override
    void refresh() {
        // The next connection asks the sentinels.
    }

    @Override
    void onDisconnected(Runnable action) {
        // Nothing is repeated here.
    }

    @Override
    void close() {
        if (isForeign()) {
            subscriber.close();
        } else {
            client.shutdownAsync(0, 2, TimeUnit.SECONDS).handle((unused, error) -> null).join();
            end(own);
        }
    }
}
