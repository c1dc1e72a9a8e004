package redislock.internal.net;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.metrics.CommandLatencyRecorder;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DefaultClientResources;
import io.lettuce.core.resource.Delay;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import redislock.LockConnectionException;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Log;
import redislock.internal.Loop;

/**
 * What the requests of a client share: the client of Lettuce, which opens connections for requests and one for messages
 * at each node, and the thread. Opening it sends nothing.
 */
public abstract class Network {
    private static final int IO_THREADS = 2;
    private static final int REDIRECTIONS = 8;
    private static final long END_SECONDS = 2;
    /** The parts of the response timeout in a cluster: a connection to a node has one, so that a node that does not
     * answer leaves time for the others. */
    static final int STEPS = 4;
    /** A process loads a thousand classes for its first request, which may take long on a busy machine. */
    private static final long COLD = 60_000 * Clock.MILLI;
    /** Whether a request has been answered in this process, outside a cluster and in one. */
    private static final AtomicBoolean WARM = new AtomicBoolean();
    private static final AtomicBoolean WARM_CLUSTER = new AtomicBoolean();

    private final String name;
    private final String server;
    private final Duration patience;
    private final AbstractRedisClient client;
    /** Whether that client is the program's, which stays open. */
    private final boolean isForeign;
    /** The threads of a client of its own, to end with it; null: they are the program's. */
    private final ClientResources own;
    private final Log log = new Log();
    private final Loop loop = new Loop("redis-lock-timers", log);
    private final Counts counts = new Counts();
    private volatile boolean isEnding;
    private volatile boolean isShut;
    /** What is called when a connection was to be opened and the program has closed its client. */
    private volatile Runnable whenLeft = () -> {};
    private final Link link;
    /** Those of {@link #linkOf}. */
    private final Set<Link> alone = ConcurrentHashMap.newKeySet();
    private final Lines lines;

    /** {@code address} is null where the client is the program's, which then has this name. */
    Network(Address address, String name, Duration patience, AbstractRedisClient client, ClientResources own) {
        this.name = address == null ? name : address.name();
        this.server = address == null ? name : address.server();
        this.isForeign = address == null;
        this.patience = patience;
        this.client = client;
        this.own = own;
        this.link = new Link(this, new Opened<>(this, this::connect, isCluster()), false);
        this.lines = new Lines(this);
    }

    /**
     * Refuses a client of Lettuce without an address, as {@code MasterReplica.connect} takes it. Lettuce does not say
     * whether there is one, but checks that before the codec, and connects to nothing without a codec.
     *
     * @throws IllegalArgumentException when it has no address
     */
    public static void checkAddress(RedisClient client) {
        try {
            client.connect((RedisCodec<byte[], byte[]>) null);
        } catch (IllegalStateException noAddress) {
            throw new IllegalArgumentException("this client of Lettuce has no address: use one of "
                    + "RedisClient.create(address), or the address of the primary itself", noAddress);
        } catch (IllegalArgumentException noCodec) {
            // It has one.
        }
    }

    /** The program's client, with this name or null; its connections select this database, if it is not 0. */
    public static Network of(RedisClient client, String name, int database, Duration patience) {
        return new OneServer(null, name == null ? "redis" : name, database, patience, client, null);
    }

    /** The program's client, with this name or null. */
    public static Network of(RedisClusterClient client, String name, Duration patience) {
        return new Cluster(null, name == null ? "cluster" : name, patience, client, null);
    }

    /** The server of this client that opens no sockets; it is closed with the network. */
    public static Network within(RedisClient memory, Duration patience) {
        return new OneServer(Address.parse("redis://memory"), null, 0, patience, memory, null);
    }

    /** A client of its own; {@code shared} and {@code ssl} may be null. */
    public static Network open(Address address, Duration patience, ClientResources shared, SslOptions ssl) {
        ClientResources own = shared != null ? null : DefaultClientResources.builder()
                .ioThreadPoolSize(IO_THREADS)
                .computationThreadPoolSize(IO_THREADS)
                .commandLatencyRecorder(CommandLatencyRecorder.disabled())
                .reconnectDelay(Delay.exponential(10, 500, TimeUnit.MILLISECONDS, 2))
                .build();
        ClientResources resources = shared != null ? shared : own;
        if (address.kind() == Address.Kind.CLUSTER) {
            Duration step = patience.dividedBy(STEPS);
            RedisClusterClient client = RedisClusterClient.create(resources,
                    address.uris().stream().map(uri -> prepared(uri, List.of(), step)).toList());
            ClusterClientOptions.Builder options = ClusterClientOptions.builder()
                    .topologyRefreshOptions(topology()).validateClusterNodeMembership(false).maxRedirects(REDIRECTIONS);
            client.setOptions((ClusterClientOptions) set(options, address, step, ssl).build());
            return new Cluster(address, null, patience, client, own);
        }
        RedisClient client = RedisClient.create(resources);
        ClientOptions.Builder options = ClientOptions.builder().autoReconnect(false)
                .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS);
        client.setOptions(set(options, address, patience, ssl).build());
        return new OneServer(address, null, 0, patience, client, own);
    }

    /** Lettuce 6 looks for changes only if it is told to. */
    @SuppressWarnings("deprecation")
    private static ClusterTopologyRefreshOptions topology() {
        return ClusterTopologyRefreshOptions.builder()
                .enableAllAdaptiveRefreshTriggers()
                .adaptiveRefreshTriggersTimeout(Duration.ofMillis(200))
                .refreshTriggersReconnectAttempts(1)
                .build();
    }

    /** The same address with the timeout and the name of this client. */
    static RedisURI prepared(RedisURI uri, List<RedisURI> sentinels, Duration patience) {
        RedisURI.Builder copy = uri.getSocket() != null ? RedisURI.Builder.socket(uri.getSocket())
                : !sentinels.isEmpty() ? RedisURI.builder().withSentinelMasterId(uri.getSentinelMasterId())
                : RedisURI.builder().withHost(uri.getHost()).withPort(uri.getPort());
        // One that does not answer leaves time for the others.
        sentinels.forEach(each ->
                copy.withSentinel(prepared(each, List.of(), patience.dividedBy(sentinels.size() + 1))));
        if (uri.getSocket() == null) {
            copy.withSsl(uri);
        }
        return copy.withAuthentication(uri).withDatabase(uri.getDatabase()).withTimeout(patience)
                .withLibraryName("redis-lock").build();
    }

    /** The response timeout is that of the requests themselves. */
    private static ClientOptions.Builder set(
            ClientOptions.Builder options, Address address, Duration patience, SslOptions ssl) {
        options.timeoutOptions(TimeoutOptions.create())
                .socketOptions(SocketOptions.builder().connectTimeout(patience).keepAlive(true).build());
        if (address.protocol() != null) {
            options.protocolVersion(address.protocol());
        }
        // A server without TLS waits for the rest of what it does not understand: that is reported in time.
        return options.sslOptions((ssl == null ? SslOptions.create() : ssl).mutate()
                .handshakeTimeout(patience.multipliedBy(3).dividedBy(4)).build());
    }

    /** The address without credentials. */
    public String name() {
        return name;
    }

    /** The server in messages of errors. */
    public String server() {
        return server;
    }

    public Loop loop() {
        return loop;
    }

    public Log log() {
        return log;
    }

    public Counts counts() {
        return counts;
    }

    /** The response timeout in nanoseconds. */
    public long patience() {
        return Clock.nanos(patience);
    }

    private AtomicBoolean warm() {
        return isCluster() ? WARM_CLUSTER : WARM;
    }

    /** Whether no request has been answered in this process. */
    boolean isCold() {
        return !warm().get();
    }

    void answered() {
        warm().setPlain(true);
    }

    /** The longest time in nanoseconds for the opening of a connection. */
    long openingPatience() {
        return isCold() ? Math.max(patience(), COLD) : patience();
    }

    public abstract boolean isCluster();

    /** Whether there is no other server to ask: no cluster, no sentinels. */
    public abstract boolean isSingle();

    /** The connection of all requests but those of sessions. */
    public Link link() {
        return link;
    }

    /** A connection of its own to the node of this key, which is not opened again after its end. */
    public Link linkOf(byte[] key) {
        AtomicBoolean isUsed = new AtomicBoolean();
        Link link = new Link(this, new Opened<>(this, () -> isUsed.compareAndSet(false, true)
                ? connectAlone(SlotHash.getSlot(key))
                : CompletableFuture.failedFuture(new LockConnectionException(
                        server, "the connection has ended", null)), false), true);
        alone.add(link);
        return link;
    }

    /** The link is closed. */
    void forget(Link link) {
        alone.remove(link);
    }

    /** A name of the node that serves this key, as far as is known; the same name outside of a cluster. */
    public abstract String nodeOf(byte[] key);

    /** Looks for the nodes of the slots. */
    public abstract CompletionStage<?> lookForNodes();

    public Lines lines() {
        return lines;
    }

    /** Opens a connection for the requests of all keys. */
    abstract CompletionStage<StatefulConnection<byte[], byte[]>> connect();

    /** Opens a connection of its own to the node of this slot. */
    abstract CompletionStage<StatefulConnection<byte[], byte[]>> connectAlone(int slot);

    /** The connection for the messages of all nodes. */
    abstract Opened<?> messages();

    /** The connection for messages at the node of this slot. */
    abstract CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot);

    /** A connection for messages has failed: the next use opens another one. */
    abstract void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection);

    /** Looks for changes of the cluster: a node does not answer, or does not serve a slot. */
    abstract void refresh();

    <T> CompletionStage<T> counted(CompletionStage<T> opening) {
        return opening.whenComplete((connection, failure) -> {
            if (failure == null) {
                counts.connections.increment();
            }
        });
    }

    /** What is called when the program is found to have closed its client: any number of times, on any thread. */
    public void whenLeft(Runnable code) {
        whenLeft = code;
    }

    /** Whether the program has closed its client, and the threads of that with it: then Lettuce connects no more. */
    public boolean isLeft() {
        return isForeign && client.getResources().eventExecutorGroup().isShuttingDown();
    }

    /** The same, which is told then. */
    boolean isFoundLeft() {
        boolean isLeft = isLeft();
        if (isLeft) {
            whenLeft.run();
        }
        return isLeft;
    }

    /** Whether nothing is opened any more. */
    boolean isEnding() {
        return isEnding;
    }

    /** Whether the end of its own client of Lettuce closes all connections. */
    boolean isShut() {
        return isShut;
    }

    /** Lettuce warns of a second time, and the end of its client is one. */
    CompletableFuture<Void> end(StatefulConnection<byte[], byte[]> connection) {
        boolean isEnded = connection instanceof RedisChannelHandler<?, ?> handler && handler.isClosed();
        return isEnded ? CompletableFuture.completedFuture(null) : connection.closeAsync();
    }

    /** Waits for the end of connections. */
    static void ended(CompletableFuture<Void> end) {
        end.orTimeout(END_SECONDS, TimeUnit.SECONDS).handle((unused, error) -> null).join();
    }

    /** Closes what this client has opened. Requests under way fail. */
    public void close() {
        isEnding = true;
        // First: Lettuce warns of a cluster's connections that are closed with its client.
        ended(CompletableFuture.allOf(link.close(), messages().close()));
        if (isForeign) {
            alone.forEach(Link::close);
            return;
        }
        isShut = true;
        client.shutdownAsync(0, END_SECONDS, TimeUnit.SECONDS).handle((unused, error) -> null).join();
        if (own != null) {
            ((io.netty.util.concurrent.Future<?>) own.shutdown(0, END_SECONDS, TimeUnit.SECONDS))
                    .awaitUninterruptibly(END_SECONDS, TimeUnit.SECONDS);
        }
    }
}
