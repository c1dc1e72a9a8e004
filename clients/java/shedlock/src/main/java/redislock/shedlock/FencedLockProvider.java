package redislock.shedlock;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import redislock.FencedLock;
import redislock.LockClient;
import redislock.LockException;
import redislock.LockOptions;

/**
 * Locks of a server with the redis-lock module, as a {@code LockProvider} of ShedLock. It takes the place of ShedLock's
 * {@code RedisLockProvider}s: the key of a lock is {@code keyPrefix:environment:name}, by default
 * {@code job-lock:default:name}.
 *
 * <p>{@code lockAtMostFor} is the lease, which is not renewed. It begins at the server, so the clocks of the nodes need
 * not agree. {@code lockAtLeastFor} counts from the request that acquired or extended the lock: an earlier
 * {@code unlock()} leaves the lock held for the rest of that time.
 *
 * <p>A lock is released and extended only by its holder: a task that ran for longer than {@code lockAtMostFor} does not
 * end the lock of the next one.
 */
public final class FencedLockProvider implements ExtensibleLockProvider {
    /** The default first part of the keys, as of ShedLock's providers. */
    public static final String DEFAULT_KEY_PREFIX = "job-lock";

    /** The default second part of the keys, as of ShedLock's providers. */
    public static final String DEFAULT_ENVIRONMENT = "default";

    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(5);
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    private final LockClient client;
    private final String prefix;

    /**
     * A provider with keys of the form {@code job-lock:default:name}.
     *
     * @param client the client, which the provider does not close
     */
    public FencedLockProvider(LockClient client) {
        this(client, DEFAULT_ENVIRONMENT);
    }

    /**
     * A provider with keys of the form {@code job-lock:environment:name}.
     *
     * @param client the client, which the provider does not close
     * @param environment keeps programs apart that have the same names of locks
     */
    public FencedLockProvider(LockClient client, String environment) {
        this(client, environment, DEFAULT_KEY_PREFIX);
    }

    /**
     * A provider with keys of the form {@code keyPrefix:environment:name}.
     *
     * @param client the client, which the provider does not close
     * @param environment keeps programs apart that have the same names of locks
     * @param keyPrefix the beginning of the keys
     */
    public FencedLockProvider(LockClient client, String environment, String keyPrefix) {
        this.client = Objects.requireNonNull(client);
        this.prefix = Objects.requireNonNull(keyPrefix) + ":" + Objects.requireNonNull(environment) + ":";
    }

    /**
     * Acquires the lock if it is free; it does not wait for another holder. While the server cannot be reached, the
     * attempt is repeated for 5 s: a short interruption should not make a scheduled task fail.
     *
     * @param configuration name, {@code lockAtMostFor} (2 ms to a hundred years) and {@code lockAtLeastFor}
     * @return the lock, a {@link FencedSimpleLock}; nothing if another holder has it
     * @throws redislock.LockException when the server cannot be reached, or refuses
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Duration lease = configuration.getLockAtMostFor();
        LockOptions options = LockOptions.defaults().lease(lease).fixedLease().margin(Duration.ZERO);
        FencedLock lock = client.lock(prefix + configuration.getName(), options);
        long first = System.nanoTime();
        while (true) {
            long start = System.nanoTime();
            try {
                return lock.tryAcquire().map(guard -> new FencedSimpleLock(configuration, guard, start));
            } catch (LockException e) {
                boolean isOver = System.nanoTime() - first > PATIENCE_NANOS || Thread.currentThread().isInterrupted();
                if (isOver || !e.isPassing()) {
                    throw e;
                }
            }
            LockSupport.parkNanos(PAUSE_NANOS);
        }
    }
}
