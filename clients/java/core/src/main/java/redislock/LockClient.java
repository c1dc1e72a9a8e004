package redislock;

import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
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
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;
import redislock.internal.Utf8;
import redislock.internal.face.LatchFace;
import redislock.internal.face.LockFace;
import redislock.internal.face.MultiFace;
import redislock.internal.face.ReadWriteFace;
import redislock.internal.face.SemaphoreFace;
import redislock.internal.face.ThreadHolds;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Terms;
import redislock.internal.net.Address;
import redislock.internal.net.Connector;
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

    private final Network network;
    private final Connector connector;
    private final Loop loop;
    private final Counts counts = new Counts();
    private final Engine engine;
    private final ThreadHolds threads;
    /** Null where the program has its own executor. */
    private final ExecutorService callbacks;
    private final ExecutorService completions;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    private LockClient(Builder builder) {
        connector = new Connector(counts, builder.responseTimeout, builder.resources, builder.ssl);
        loop = new Loop("redis-lock-timers");
        network = new Network(builder.address, connector, loop, counts, builder.parks);
        boolean isOwn = builder.executor == null;
        // A loss waits for no other callback. The stages of futures share a few threads: ten thousand may complete at
        // once.
        callbacks = isOwn ? ownExecutor(0, Integer.MAX_VALUE, new SynchronousQueue<>()) : null;
        completions = isOwn ? ownExecutor(COMPLETIONS, COMPLETIONS, new LinkedBlockingQueue<>()) : null;
        engine = new Engine(network, isOwn ? callbacks : builder.executor, isOwn ? completions : builder.executor,
                builder.observer);
        threads = new ThreadHolds(engine);
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
     * A builder of a client for this address. The forms:
     *
     * <ul>
     * <li>{@code redis://[user:password@]host[:port][/db]}: one server
     * <li>{@code redis+cluster://[user:password@]host:port[,host:port...]}: a cluster, by some of its nodes
     * <li>{@code redis+sentinel://[user:password@]host:port[,host:port...]/name[/db]}: the primary that sentinels call
     * {@code name}
     * </ul>
     *
     * {@code rediss}, {@code rediss+cluster} and {@code rediss+sentinel} are the same with TLS, which also applies to
     * the sentinels. User and password are those of the servers; the login of the sentinels is {@code
     * ?sentinel-user=u&sentinel-password=p} at the end. Special characters are percent-encoded.
     *
     * @param address the address
     * @return a builder
     * @throws IllegalArgumentException when the address cannot be read
     */
    public static Builder builder(String address) {
        return new Builder(Address.parse(address));
    }

    /**
     * A builder of a client for this server, or for the primary that these sentinels name.
     *
     * @param uri host, port, login, database and TLS are used, and the sentinels
     * @return a builder
     */
    public static Builder builder(RedisURI uri) {
        return new Builder(Address.of(uri));
    }

    /**
     * A builder of a client for a cluster.
     *
     * @param uris some of its nodes; login and TLS of the first one count for all
     * @return a builder
     */
    public static Builder clusterBuilder(List<RedisURI> uris) {
        return new Builder(Address.ofCluster(uris));
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
        return lock(Utf8.bytes(key), options);
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
        return new LockFace(Terms.of(engine, key, Mode.EXCLUSIVE, options), threads);
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
        return readWriteLock(Utf8.bytes(key), options);
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
        LockFace read = new LockFace(Terms.of(engine, key, Mode.READ, options), threads);
        LockFace write = new LockFace(Terms.of(engine, key, Mode.WRITE, options), threads);
        return new ReadWriteFace(read, write);
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
        return semaphore(Utf8.bytes(key), options);
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
        return new SemaphoreFace(engine, key, options);
    }

    /**
     * The latch of this key.
     *
     * @param key the key, as UTF-8
     * @return the latch
     */
    public Latch latch(String key) {
        return latch(Utf8.bytes(key));
    }

    /**
     * The latch of this key.
     *
     * @param key any bytes
     * @return the latch
     */
    public Latch latch(byte[] key) {
        return new LatchFace(engine, key);
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
        return multiLock(List.of(locks));
    }

    /**
     * Several locks that are acquired together or not at all.
     *
     * @param locks 1 to 1024 different locks, of this or other clients
     * @return the combined lock
     * @throws IllegalArgumentException when there are none or more than 1024, one is named twice, or one has {@link
     *     LockOptions#session()}
     */
    public MultiLock multiLock(List<FencedLock> locks) {
        return new MultiFace(locks);
    }

    /**
     * What this process has done through this client. Nothing is sent.
     *
     * @return counters and gauges
     */
    public LockStatistics statistics() {
        return counts.read();
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
        if (wait.isNegative()) {
            throw new IllegalArgumentException("a wait is not negative");
        }
        Blocking.check();
        try {
            engine.background().settled().get(Clock.nanos(wait), TimeUnit.NANOSECONDS);
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
        loop.end();
        boolean isInterrupted = Thread.interrupted();
        try {
            endConnections();
            endCallbacks();
        } catch (InterruptedException hurried) {
            isInterrupted = true;
        } finally {
            engine.freeNames();
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void endConnections() throws InterruptedException {
        try {
            // First, so that its last step opens no connection.
            loop.join(END_MILLIS);
        } finally {
            network.close();
        }
    }

    private void endCallbacks() throws InterruptedException {
        for (ExecutorService own : callbacks == null ? List.<ExecutorService>of() : List.of(completions, callbacks)) {
            own.shutdown();
            // A callback that closes the client does not wait for itself.
            if (!Thread.currentThread().getName().startsWith(CALLBACK)) {
                own.awaitTermination(END_MILLIS, TimeUnit.MILLISECONDS);
            }
        }
    }

    /** Shows no credentials. */
    @Override
    public String toString() {
        return "LockClient[" + name() + "]";
    }

    /** The settings of a client. */
    public static final class Builder {
        private final Address address;
        private Duration responseTimeout = Duration.ofSeconds(5);
        private boolean parks;
        private ClientResources resources;
        private SslOptions ssl;
        private Executor executor;
        private LockObserver observer;

        private Builder(Address address) {
            this.address = address;
        }

        /**
         * The time without a reply after which a connection is closed. A parked wait is sent in slices of at most half
         * of it.
         *
         * @param timeout 5 s by default, at most a day
         * @return this
         * @throws IllegalArgumentException when it is not positive
         */
        public Builder responseTimeout(Duration timeout) {
            if (timeout.isNegative() || timeout.toMillis() == 0 || timeout.compareTo(LONGEST_TIMEOUT) > 0) {
                throw new IllegalArgumentException("a response timeout is 1 ms to a day");
            }
            responseTimeout = timeout;
            return this;
        }

        /**
         * Each wait is parked on a connection of its own, also where the server offers tickets (waits that share one
         * subscription). For a program that has one wait at a time: when the program dies, the server removes a parked
         * wait at once, and keeps a ticket for up to 30 s (which delays no other wait).
         *
         * @return this
         */
        public Builder parkedWaits() {
            parks = true;
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
         * rest. What an executor refuses runs in Java's common pool, as soon as that gets a thread.
         *
         * @param executor must not run them in the calling thread
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
         * Opens the client. Nothing is sent yet. The first connection of a process, and the first one with TLS, loads
         * the classes that it needs: an acquisition that begins before may last as long as the response timeout,
         * whatever its bound.
         *
         * @return the client
         */
        public LockClient build() {
            return new LockClient(this);
        }
    }
}
