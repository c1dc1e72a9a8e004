package redislock.internal.net;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.metrics.CommandLatencyRecorder;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DefaultClientResources;
import io.lettuce.core.resource.Delay;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import redislock.LockConnectionException;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;

/** What the requests of a client share: the connections and the thread. Opening it sends nothing. */
public final class Network {
    private static final int IO_THREADS = 2;
    private static final int REDIRECTIONS = 8;

    private final Transport transport;
    private final Duration patience;
    private final Loop loop;
    private final Counts counts;
    private final Link link;
    private final Lines lines;

    private Network(Transport transport, Duration patience, Loop loop, Counts counts) {
        this.transport = transport;
        this.patience = patience;
        this.loop = loop;
        this.counts = counts;
        this.link = new Link(transport, loop,
                new Opened<>(transport.server(), loop, patience(), transport::connect, transport.isCluster()), false);
        this.lines = new Lines(this, transport);
        transport.onDisconnected(link::disconnected);
    }

    /** The program's client, with this name or null; its connections select this database, if it is not 0. */
    public static Network of(RedisClient client, String name, int database, Duration patience, Loop loop,
            Counts counts) {
        String server = name == null ? "redis" : name;
        return new Network(new OneServer(null, server, database, patience, loop, counts, client, null), patience, loop,
                counts);
    }

    /** The program's client, with this name or null. */
    public static Network of(RedisClusterClient client, String name, Duration patience, Loop loop, Counts counts) {
        String server = name == null ? "cluster" : name;
        return new Network(new Cluster(null, server, patience, loop, counts, client, null), patience, loop, counts);
    }

    /** A client of its own; {@code shared} and {@code ssl} may be null. */
    public static Network open(Address address, Duration patience, ClientResources shared, SslOptions ssl, Loop loop,
            Counts counts) {
        ClientResources own = shared != null ? null : DefaultClientResources.builder()
                .ioThreadPoolSize(IO_THREADS)
                .computationThreadPoolSize(IO_THREADS)
                .commandLatencyRecorder(CommandLatencyRecorder.disabled())
                .reconnectDelay(Delay.exponential(10, 500, TimeUnit.MILLISECONDS, 2))
                .build();
        ClientResources resources = shared != null ? shared : own;
        Transport transport;
        if (address.kind() == Address.Kind.CLUSTER) {
            RedisClusterClient client = RedisClusterClient.create(resources,
                    address.uris().stream().map(uri -> prepared(uri, List.of(), patience)).toList());
            ClusterClientOptions.Builder options = ClusterClientOptions.builder()
                    .topologyRefreshOptions(topology()).validateClusterNodeMembership(false).maxRedirects(REDIRECTIONS);
            client.setOptions((ClusterClientOptions) set(options, address, patience, ssl).build());
            transport = new Cluster(address, null, patience, loop, counts, client, own);
        } else {
            RedisClient client = RedisClient.create(resources);
            ClientOptions.Builder options = ClientOptions.builder().autoReconnect(false)
                    .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS);
            client.setOptions(set(options, address, patience, ssl).build());
            transport = new OneServer(address, null, 0, patience, loop, counts, client, own);
        }
        return new Network(transport, patience, loop, counts);
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

    public String name() {
        return transport.name();
    }

    /** The server in messages of errors. */
    public String server() {
        return transport.server();
    }

    public Loop loop() {
        return loop;
    }

    public Counts counts() {
        return counts;
    }

    /** The response timeout in nanoseconds. */
    public long patience() {
        return Clock.nanos(patience);
    }

    public boolean isCluster() {
        return transport.isCluster();
    }

    /** Whether there is no other server to ask: no cluster, no sentinels. */
    public boolean isSingle() {
        return transport.isSingle();
    }

    /** The connection of all requests but those of sessions. */
    public Link link() {
        return link;
    }

    /** A connection for one hold, which is not opened again after its end. */
    public Link linkOf(byte[] key) {
        AtomicBoolean isUsed = new AtomicBoolean();
        String server = transport.server();
        return new Link(transport, loop, new Opened<>(server, loop, patience(), () -> isUsed.compareAndSet(false, true)
                ? transport.connectAlone(SlotHash.getSlot(key))
                : CompletableFuture.failedFuture(new LockConnectionException(
                        server, "the connection to which the hold was bound has ended", null)), false), true);
    }

    public Lines lines() {
        return lines;
    }

    /** Closes every connection. Requests under way fail. */
    public void close() {
        if (transport.isForeign()) {
            // Otherwise the end of Lettuce's client closes it, with those of its sessions.
            link.close();
        }
        transport.close();
    }
}
