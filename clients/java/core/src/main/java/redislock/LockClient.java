package redislock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.Utf8;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Terms;
import redislock.internal.net.Address;
import redislock.internal.net.Network;

/**
 * The locks of a server that has the module loaded, of a cluster of them, or of the primary that sentinels name.
 * Opening a client sends nothing. One client for a program is enough: it has one connection to each node for all
 * requests, one more for the messages of waits, and one thread for timers.
 */
public final class LockClient implements AutoCloseable {
    private static final Duration LONGEST_TIMEOUT = Duration.ofDays(1);
    /** How much longer than the response timeout the end of a client may take. */
    private static final long END_MILLIS = 2_000;
    private static final String CALLBACK = "redis-lock-callback-";
    /** Threads for the stages of futures. */
    private static final int COMPLETIONS = 16;

    final Network network;
    private final Engine engine;
    private final Map<ThreadHolds.Name, ThreadHolds.Counted> held = new ConcurrentHashMap<>();
    private final ExecutorService callbacks;
    private final ExecutorService completions;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    private LockClient(Builder builder) {
        network = builder.opener.apply(builder);
        // A loss waits for no other callback. The stages of futures share a few threads: ten thousand may complete at
        // once.
        callbacks = ownExecutor(0, Integer.MAX_VALUE, new SynchronousQueue<>());
        completions = ownExecutor(COMPLETIONS, COMPLETIONS, new LinkedBlockingQueue<>());
        engine = new Engine(network, callbacks, completions, builder.executor, builder.observer);
    }

    private static ExecutorService ownExecutor(int core, int most, BlockingQueue<Runnable> queue) {
        AtomicInteger number = new AtomicInteger();
        ThreadPoolExecutor executor = new ThreadPoolExecutor(core, most, 30, TimeUnit.SECONDS, queue, task -> {
            Thread thread = new Thread(task, CALLBACK + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        });
        executor.allowCoreThreadTimeOut(true);
        return executor;
    }

    /**
     * The client of this address, with the defaults of {@link Builder}.
     *
     * @param address see {@link #builder(String)}
     * @return the client
     * @throws IllegalArgumentException when the address cannot be read
     */
    public static LockClient create(String address) {
        return builder(address).build();
    }

    /**
     * The client of a program's own client of Lettuce, which stays open when this one is closed: its connections have
     * the credentials, certificates and options of that client. Close this one first: without that one it can release
     * nothing.
     *
     * @param client of a server, or of the primary that sentinels name
     * @return the client
     * @throws IllegalArgumentException when the client was created without an address
     */
    public static LockClient of(RedisClient client) {
        return builder(client).build();
    }

    /**
     * The client of a program's own client of Lettuce, see {@link #of(RedisClient)}.
     *
     * @param client of a cluster
     * @return the client
     */
    public static LockClient of(RedisClusterClient client) {
        return builder(client).build();
    }

    /**
     * A builder for {@link #of(RedisClient)}.
     *
     * @param client of a server, or of the primary that sentinels name
     * @return a builder
     * @throws IllegalArgumentException when the client was created without an address
     */
    public static Builder builder(RedisClient client) {
        Network.checkAddress(Objects.requireNonNull(client, "client"));
        return new Builder(set -> Network.of(client, set.name, set.database, set.responseTimeout));
    }

    /**
     * A builder for {@link #of(RedisClusterClient)}.
     *
     * @param client of a cluster
     * @return a builder
     */
    public static Builder builder(RedisClusterClient client) {
        Objects.requireNonNull(client, "client");
        return new Builder(set -> Network.of(client, set.name, set.responseTimeout));
    }

    /**
     * A builder of a client for this address. The forms:
     *
     * <ul>
     * <li>{@code redis://[user:password@]host[:port][/database]}: one server
     * <li>{@code redis+cluster://[user:password@]host[:port],host[:port]...}: a cluster, by some of its nodes
     * <li>{@code redis+sentinel://[user:password@]host[:port],.../name[/database]}: the primary that sentinels call
     * {@code name}
     * <li>{@code unix://[user:password@]/path}: a Unix socket, for which Netty's native transport is needed
     * </ul>
     *
     * {@code rediss}, {@code rediss+cluster} and {@code rediss+sentinel} are the same with TLS, which also applies to
     * the sentinels. User and password are those of the servers; the login of the sentinels is {@code
     * ?sentinel-user=u&sentinel-password=p} at the end. Other options there are {@code db=N} and {@code protocol=2} or
     * {@code 3}. Special characters are percent-encoded.
     *
     * @param address the address
     * @return a builder
     * @throws IllegalArgumentException when the address cannot be read
     */
    public static Builder builder(String address) {
        Address parsed = Address.parse(Objects.requireNonNull(address, "address"));
        return new Builder(set -> Network.open(parsed, set.responseTimeout, set.resources, set.ssl));
    }

    /**
     * The exclusive lock of this key.
     *
     * @param key the key, as UTF-8
     * @return the lock
     */
    public FencedLock lock(String key) {
        return lock(key, LockOptions.defaults());
    }

    /**
     * The exclusive lock of this key.
     *
     * @param key any bytes
     * @return the lock
     */
    public FencedLock lock(byte[] key) {
        return lock(key, LockOptions.defaults());
    }

    /**
     * The exclusive lock of this key.
     *
     * @param key     the key, as UTF-8
     * @param options lease, margin, owner
     * @return the lock
     * @throws IllegalArgumentException when the options contradict each other
     */
    public FencedLock lock(String key, LockOptions options) {
        return lock(Utf8.bytes(key, "key"), options);
    }

    /**
     * The exclusive lock of this key.
     *
     * @param key     any bytes
     * @param options lease, margin, owner
     * @return the lock
     * @throws IllegalArgumentException when the options contradict each other
     */
    public FencedLock lock(byte[] key, LockOptions options) {
        return new FencedLock(Terms.of(engine, key, Mode.EXCLUSIVE, options), held);
    }

    /**
     * The read-write lock of this key.
     *
     * @param key the key, as UTF-8
     * @return the lock
     */
    public FencedReadWriteLock readWriteLock(String key) {
        return readWriteLock(key, LockOptions.defaults());
    }

    /**
     * The read-write lock of this key.
     *
     * @param key     the key, as UTF-8
     * @param options lease, margin, owner
     * @return the lock
     * @throws IllegalArgumentException when the options contradict each other
     */
    public FencedReadWriteLock readWriteLock(String key, LockOptions options) {
        return readWriteLock(Utf8.bytes(key, "key"), options);
    }

    /**
     * The read-write lock of this key.
     *
     * @param key     any bytes
     * @param options lease, margin, owner
     * @return the lock
     * @throws IllegalArgumentException when the options contradict each other
     */
    public FencedReadWriteLock readWriteLock(byte[] key, LockOptions options) {
        FencedLock read = new FencedLock(Terms.of(engine, key, Mode.READ, options), held);
        FencedLock write = new FencedLock(Terms.of(engine, key, Mode.WRITE, options), held);
        return new FencedReadWriteLock(read, write);
    }

    /**
     * The semaphore of this key.
     *
     * @param key the key, as UTF-8
     * @return the semaphore
     */
    public LockSemaphore semaphore(String key) {
        return semaphore(key, LockOptions.defaults());
    }

    /**
     * The semaphore of this key.
     *
     * @param key     the key, as UTF-8
     * @param options lease, margin, owner, limit
     * @return the semaphore
     * @throws IllegalArgumentException when the options contradict each other
     */
    public LockSemaphore semaphore(String key, LockOptions options) {
        return semaphore(Utf8.bytes(key, "key"), options);
    }

    /**
     * The semaphore of this key.
     *
     * @param key     any bytes
     * @param options lease, margin, owner, limit
     * @return the semaphore
     * @throws IllegalArgumentException when the options contradict each other
     */
    public LockSemaphore semaphore(byte[] key, LockOptions options) {
        return new LockSemaphore(engine, key, options);
    }

    /**
     * The latch of this key.
     *
     * @param key the key, as UTF-8
     * @return the latch
     */
    public Latch latch(String key) {
        return latch(Utf8.bytes(key, "key"));
    }

    /**
     * The latch of this key.
     *
     * @param key any bytes
     * @return the latch
     */
    public Latch latch(byte[] key) {
        return new Latch(engine, key, null);
    }

    /**
     * The election on this key.
     *
     * @param key the key, as UTF-8
     * @return the election
     */
    public Election election(String key) {
        return election(key, LockOptions.defaults());
    }

    /**
     * The election on this key.
     *
     * @param key     the key, as UTF-8
     * @param options lease, margin, session
     * @return the election
     * @throws IllegalArgumentException when the options contradict each other
     */
    public Election election(String key, LockOptions options) {
        return new Election(engine, Utf8.bytes(key, "key"), options);
    }

    /**
     * Several locks that are acquired together or not at all.
     *
     * @param locks 1 to 1024 different locks, of this or other clients
     * @return the combined lock
     * @throws IllegalArgumentException when there are none or more than 1024, one is named twice, or one has {@link
     *     LockOptions#session()}
     */
    public MultiLock multiLock(FencedLock... locks) {
        return new MultiLock(Arrays.asList(Objects.requireNonNull(locks, "locks")));
    }

    /**
     * What this process has done through this client. Nothing is sent.
     *
     * @return counters and gauges
     */
    public LockStatistics statistics() {
        return network.counts().read();
    }

    /**
     * The address without credentials: {@code host:port/db}, for a cluster that of each seed; for sentinels their hosts
     * and the name of the primary.
     *
     * @return the name
     */
    public String name() {
        return network.name();
    }

    /**
     * Waits until all abandoned waits are withdrawn and all closed guards are released: for a program that is about to
     * end.
     *
     * @param wait the longest wait, zero or more
     * @return the locks that could not be released since the last call; they end with their lease, or with their
     *     connection. (Of more than a thousand, the last thousand.)
     * @throws InterruptedException     when this thread is interrupted
     * @throws IllegalArgumentException when the wait is negative
     * @throws IllegalStateException    on an event loop of Lettuce
     */
    public List<Unreleased> settled(Duration wait) throws InterruptedException {
        long end = Clock.end(Objects.requireNonNull(wait, "wait"));
        Blocking.check();
        try {
            engine.background().settled().get(Clock.left(end), TimeUnit.NANOSECONDS);
        } catch (ExecutionException | TimeoutException unsettled) {
            // The failures so far are returned.
        }
        return engine.background().failures();
    }

    /**
     * Ends all waits (with {@link LockClosedException}), releases all holds, for at most the response timeout, and
     * leaves no thread and no connection. A second call does nothing.
     */
    @Override
    public void close() {
        Blocking.check();
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        Blocking.await(engine.close(), network.patience());
        engine.finish();
        network.loop().end();
        boolean isInterrupted = Thread.interrupted();
        try {
            endConnections();
            endCallbacks();
            network.log().end(END_MILLIS);
        } catch (InterruptedException hurried) {
            isInterrupted = true;
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void endConnections() throws InterruptedException {
        try {
            // First, so that its last step opens no connection.
            network.loop().join(END_MILLIS);
        } finally {
            network.close();
        }
    }

    private void endCallbacks() throws InterruptedException {
        for (ExecutorService own : List.of(completions, callbacks)) {
            own.shutdown();
            // A callback that closes the client does not wait for itself.
            if (!Thread.currentThread().getName().startsWith(CALLBACK)) {
                own.awaitTermination(END_MILLIS, TimeUnit.MILLISECONDS);
            }
        }
    }

    /** Reports the holds of this key as lost. */
    void lose(String name) {
        engine.lose(name);
    }

    /** Shows no credentials. */
    @Override
    public String toString() {
        return "LockClient[" + name() + "]";
    }

    /** The settings of a client. */
    public static final class Builder {
        private final Function<Builder, Network> opener;
        Duration responseTimeout = Duration.ofSeconds(5);
        private @Nullable String name;
        private int database;
        private @Nullable ClientResources resources;
        private @Nullable SslOptions ssl;
        private @Nullable Executor executor;
        private @Nullable LockObserver observer;

        Builder(Function<Builder, Network> opener) {
            this.opener = opener;
        }

        /**
         * The time after which a call fails that gets no reply. An attempt has half of it; then its connection is
         * closed and the request sent once more.
         *
         * @param timeout 5 s by default, at most a day
         * @return this
         * @throws IllegalArgumentException when it is not positive
         */
        public Builder responseTimeout(Duration timeout) {
            Objects.requireNonNull(timeout, "timeout");
            if (timeout.isNegative() || timeout.toMillis() == 0 || timeout.compareTo(LONGEST_TIMEOUT) > 0) {
                throw new IllegalArgumentException("a response timeout is 1 ms to a day");
            }
            responseTimeout = timeout;
            return this;
        }

        /**
         * The name of the server of a program's own client, whose address this one does not know: in errors, in meters,
         * and in the order of servers of a {@link MultiLock}, so it must be the same in all programs.
         *
         * @param server {@code host:port/db}, for example; by default {@code redis}, or {@code cluster}
         * @return this
         */
        public Builder name(String server) {
            name = Objects.requireNonNull(server, "server");
            return this;
        }

        /**
         * The database of the connections that a program's own client opens, where its address does not name it, as
         * that of Spring Data does not.
         *
         * @param number zero or more
         * @return this
         * @throws IllegalArgumentException when it is negative
         */
        public Builder database(int number) {
            if (number < 0) {
                throw new IllegalArgumentException("a database is not negative");
            }
            database = number;
            return this;
        }

        /**
         * The event loops of the connections. The client does not end them. By default it has its own.
         *
         * @param resources shared resources of Lettuce
         * @return this
         */
        public Builder clientResources(ClientResources resources) {
            this.resources = resources;
            return this;
        }

        /**
         * The certificates for {@code rediss://}: of authorities to trust instead of Java's, and of the client.
         *
         * @param options options of Lettuce
         * @return this
         */
        public Builder sslOptions(SslOptions options) {
            ssl = options;
            return this;
        }

        /**
         * Runs the callbacks of losses, those of the observer and the dependent stages of futures. By default the
         * client has daemon threads of its own for them: two for each loss that is being reported, and 16 for the
         * rest. These threads pass them to the executor, so one that blocks or runs them in the calling thread delays
         * no renewal. What an executor refuses runs in these threads.
         *
         * @param executor the executor of the program, which is not ended
         * @return this
         */
        public Builder executor(Executor executor) {
            this.executor = executor;
            return this;
        }

        /**
         * Sets the observer of the durations of waits and holds, for timers.
         *
         * @param observer its methods are called on the executor
         * @return this
         */
        public Builder observer(LockObserver observer) {
            this.observer = observer;
            return this;
        }

        /**
         * Opens the client. Nothing is sent yet.
         *
         * @return the client
         */
        public LockClient build() {
            return new LockClient(this);
        }
    }
}
