package redislock.internal.net;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.MaintNotificationsConfig;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.metrics.CommandLatencyRecorder;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DefaultClientResources;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import redislock.internal.Clock;
import redislock.internal.Counts;

/**
 * Opens the connections of a client. Lettuce neither reconnects nor repeats a command here: what has to be repeated,
 * and what must not be, is decided by the requests themselves.
 */
public final class Connector {
    private static final int IO_THREADS = 2;
    /** Lettuce 7 and newer. */
    static final boolean HAS_MAINTENANCE_NOTICES = isPresent("io.lettuce.core.MaintNotificationsConfig");
    /** With TLS (true) and without: whether an attempt to connect has ended in this process, whatever its result. */
    private static final Set<Boolean> WARM = ConcurrentHashMap.newKeySet();

    private final Counts counts;
    private final Duration patience;
    private final ClientResources own;
    private final RedisClient client;
    /** When the first request of this client was made; zero before. */
    private final AtomicLong firstUse = new AtomicLong();

    /** {@code shared} and {@code ssl} may be null. */
    public Connector(Counts counts, Duration patience, ClientResources shared, SslOptions ssl) {
        this.counts = counts;
        this.patience = patience;
        this.own = shared != null ? null : DefaultClientResources.builder()
                .ioThreadPoolSize(IO_THREADS)
                .computationThreadPoolSize(IO_THREADS)
                .commandLatencyRecorder(CommandLatencyRecorder.disabled())
                .build();
        this.client = RedisClient.create(shared != null ? shared : own);
        client.setOptions(options(patience, ssl));
    }

    static ClientOptions options(Duration patience, SslOptions ssl) {
        ClientOptions.Builder options = ClientOptions.builder()
                .autoReconnect(false)
                .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                .timeoutOptions(TimeoutOptions.create())
                .socketOptions(SocketOptions.builder().connectTimeout(patience).build());
        if (HAS_MAINTENANCE_NOTICES) {
            MaintenanceNotices.turnOff(options);
        }
        if (ssl != null) {
            options.sslOptions(ssl);
        }
        return options.build();
    }

    private static boolean isPresent(String className) {
        try {
            Class.forName(className, false, RedisClient.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException older) {
            return false;
        }
    }

    /** A class of its own, since Lettuce 6 has no class of these settings: it is loaded only where they are there. */
    private static final class MaintenanceNotices {
        /** Lettuce moves a connection by itself when a server announces its maintenance. */
        static void turnOff(ClientOptions.Builder options) {
            options.maintNotificationsConfig(MaintNotificationsConfig.disabled());
        }
    }

    /** The response timeout of a request, and of the opening of a connection. */
    long patience() {
        return Clock.nanos(patience);
    }

    /** Until when an acquisition may last in spite of its own bound; zero: its bound counts. One that begins before the
     * first connection of a process is open loads a thousand classes, of Lettuce, of sockets, of TLS. */
    long coldUntil(RedisURI login) {
        if (WARM.contains(login.isSsl())) {
            return 0;
        }
        firstUse.compareAndSet(0, Clock.now());
        return firstUse.get() + patience();
    }

    CompletableFuture<Connection> open(Node node, RedisURI login) {
        RedisURI uri = uri(node, login);
        return opened(node, login, () -> client.connectAsync(ByteArrayCodec.INSTANCE, uri))
                .thenApply(link -> new Connection(node, link));
    }

    CompletableFuture<StatefulRedisPubSubConnection<byte[], byte[]>> openSubscription(Node node, RedisURI login) {
        RedisURI uri = uri(node, login);
        return opened(node, login, () -> client.connectPubSubAsync(ByteArrayCodec.INSTANCE, uri));
    }

    private <T> CompletableFuture<T> opened(Node node, RedisURI login, Supplier<CompletionStage<T>> open) {
        CompletableFuture<T> result = new CompletableFuture<>();
        try {
            open.get().whenComplete((link, failure) -> {
                ended(login);
                if (failure != null) {
                    result.completeExceptionally(Errors.ofTransport(node.name(), failure));
                } else {
                    counts.connections.increment();
                    result.complete(link);
                }
            });
        } catch (RuntimeException failure) {
            ended(login);
            result.completeExceptionally(Errors.ofTransport(node.name(), failure));
        }
        return result;
    }

    private void ended(RedisURI login) {
        WARM.add(login.isSsl());
    }

    private RedisURI uri(Node node, RedisURI login) {
        return RedisURI.builder(login)
                .withHost(node.host())
                .withPort(node.port())
                .withTimeout(patience)
                .withLibraryName("redis-lock")
                .build();
    }

    /** Closes every connection, and ends the threads that belong to the client. */
    public void close() {
        long seconds = 2;
        // An interruption ends neither wait: both would leave threads.
        client.shutdownAsync(0, seconds, TimeUnit.SECONDS).handle((unused, error) -> null).join();
        if (own != null) {
            own.shutdown(0, seconds, TimeUnit.SECONDS).awaitUninterruptibly(seconds, TimeUnit.SECONDS);
        }
    }
}
