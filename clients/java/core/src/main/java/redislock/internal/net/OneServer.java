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
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Supplier;

/** One server, or the primary that sentinels name: Lettuce asks them whenever it opens a connection. */
final class OneServer extends Network {
    private final RedisClient client;
    /** Null: the client is the program's, which has the address. */
    private final RedisURI uri;
    private final int database;
    private final Duration patience;
    private final AtomicInteger failures = new AtomicInteger();
    private final Opened<StatefulRedisPubSubConnection<byte[], byte[]>> messages;

    OneServer(Address address, String name, int database, Duration patience, RedisClient client,
            ClientResources own) {
        super(address, name, patience, client, own);
        this.client = client;
        this.uri = address == null ? null : address.uris().get(0);
        this.database = database;
        this.patience = patience;
        this.messages = new Opened<>(this, () -> open(() -> client.connectPubSub(ByteArrayCodec.INSTANCE),
                turned -> client.connectPubSubAsync(ByteArrayCodec.INSTANCE, turned)), false);
    }

    @Override
    public boolean isCluster() {
        return false;
    }

    @Override
    public boolean isSingle() {
        return uri != null && uri.getSentinels().isEmpty();
    }

    /** The address of the program's client is known only to its methods that block: these need a thread. */
    private <C> CompletionStage<C> open(Supplier<C> known, Function<RedisURI, CompletionStage<C>> at) {
        if (uri == null) {
            return counted(CompletableFuture.supplyAsync(known, task -> {
                Thread thread = new Thread(task, "redis-lock-connect");
                // A closed client of Lettuce may keep it for ever.
                thread.setDaemon(true);
                thread.start();
            }));
        }
        // After a failure beginning with another sentinel, as the first one may know of no primary.
        List<RedisURI> sentinels = new ArrayList<>(uri.getSentinels());
        Collections.rotate(sentinels, failures.get());
        return counted(at.apply(prepared(uri, sentinels, patience))).whenComplete((connection, failure) -> {
            if (failure != null) {
                failures.incrementAndGet();
            }
        });
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connect() {
        return open(() -> client.connect(ByteArrayCodec.INSTANCE),
                turned -> client.connectAsync(ByteArrayCodec.INSTANCE, turned))
                .thenCompose(connection -> database == 0 ? CompletableFuture.completedFuture(connection)
                        : connection.async().select(database).thenApply(selected -> connection));
    }

    @Override
    CompletionStage<StatefulConnection<byte[], byte[]>> connectAlone(int slot) {
        return connect();
    }

    @Override
    Opened<?> messages() {
        return messages;
    }

    @Override
    CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot) {
        return messages.get();
    }

    @Override
    void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
        messages.drop(connection);
    }

    @Override
    public String nodeOf(byte[] key) {
        return "";
    }

    @Override
    public CompletionStage<?> lookForNodes() {
        return CompletableFuture.completedFuture(null);
    }

    @Override
    void refresh() {
        // The next connection asks the sentinels.
    }
}
