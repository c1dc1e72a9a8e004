package redislock.spring;

import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.util.Assert;
import redislock.FencedLock;
import redislock.LockClient;
import redislock.LockOptions;
import redislock.Lost;

/**
 * Locks of a server with the redis-lock module, as a {@code LockRegistry} of Spring Integration. It takes the place of
 * {@code RedisLockRegistry}: the key of a lock is {@code registryKey:lockKey}, and the lease is 60 s unless it is set.
 *
 * <p>Nothing is polled. The threads of a registry that want one lock wait in order, and the first of them waits at the
 * server, which grants the lock to the registries of all processes in the order of their requests. Each grant has a
 * fencing token, see {@link FencedDistributedLock#token()}.
 *
 * <p>By default a lease is not renewed, so a lock that is held for longer is lost, and the {@code unlock()} that
 * follows throws {@link java.util.ConcurrentModificationException}. {@link #setRenewing} makes the client renew leases
 * while the locks are held.
 *
 * <p>The registry keeps its locks for later use, at most {@linkplain #setCacheCapacity a number of them}. The least
 * recently used lock is evicted when another one needs its place; if all of them are held, {@link #obtain} throws
 * {@link CannotAcquireLockException}. {@link #expireUnusedOlderThan} removes locks too. The acquisition of an evicted
 * or removed lock throws {@link CannotAcquireLockException}, whose cause is an {@link IllegalStateException}. Obtain a
 * lock each time that it is used.
 *
 * <p>Locks of two registries exclude each other, also in one thread and with one client.
 */
public final class FencedLockRegistry
        implements ExpirableLockRegistry<DistributedLock>, RenewableLockRegistry<DistributedLock>, DisposableBean {
    private static final Duration DEFAULT_EXPIRE_AFTER = Duration.ofSeconds(60);
    private static final int DEFAULT_CAPACITY = 100_000;

    private final LockClient client;
    private final String registryKey;
    private final Duration expireAfter;

    /** In the order of the last use. It is its own monitor. */
    private final Map<String, RegistryLock> locks = new LinkedHashMap<>(16, 0.75F, true);
    private int cacheCapacity = DEFAULT_CAPACITY;

    private volatile boolean isRenewing;
    private volatile @Nullable Consumer<Lost> onLost;
    private volatile boolean isDestroyed;

    /**
     * A registry whose leases last 60 s.
     *
     * @param client the client, which the registry does not close
     * @param registryKey the prefix of the keys, without the colon
     */
    public FencedLockRegistry(LockClient client, String registryKey) {
        this(client, registryKey, DEFAULT_EXPIRE_AFTER);
    }

    /**
     * A registry with another lease.
     *
     * @param client the client, which the registry does not close
     * @param registryKey the prefix of the keys, without the colon
     * @param expireAfter the lease in milliseconds, at least 2
     */
    public FencedLockRegistry(LockClient client, String registryKey, long expireAfter) {
        this(client, registryKey, Duration.ofMillis(expireAfter));
    }

    /**
     * A registry with another lease.
     *
     * @param client the client, which the registry does not close
     * @param registryKey the prefix of the keys, without the colon
     * @param expireAfter the lease, 2 ms to a hundred years
     */
    public FencedLockRegistry(LockClient client, String registryKey, Duration expireAfter) {
        Assert.notNull(client, "'client' must not be null");
        Assert.notNull(registryKey, "'registryKey' must not be null");
        Assert.notNull(expireAfter, "'expireAfter' must not be null");
        this.client = client;
        this.registryKey = registryKey;
        this.expireAfter = LockOptions.defaults().lease(expireAfter).lease();
    }

    /**
     * Sets whether the client renews the leases of held locks, every third of the lease. It applies to later
     * acquisitions.
     *
     * @param isRenewing whether it renews, false by default
     */
    public void setRenewing(boolean isRenewing) {
        this.isRenewing = isRenewing;
    }

    /**
     * The same as {@code setRenewing(true)}, for configurations of {@code RedisLockRegistry}. The scheduler is not
     * used: the client renews with its own timer.
     *
     * @param renewalTaskScheduler any scheduler
     */
    @Override
    public void setRenewalTaskScheduler(TaskScheduler renewalTaskScheduler) {
        Assert.notNull(renewalTaskScheduler, "'renewalTaskScheduler' must not be null");
        setRenewing(true);
    }

    /**
     * Sets a callback for holds that are lost before they are unlocked. It runs on the client's executor, once for each
     * loss. It applies to later acquisitions. Without renewals the end of the lease is a loss.
     *
     * @param onLost the callback
     */
    public void setOnLost(Consumer<Lost> onLost) {
        this.onLost = Objects.requireNonNull(onLost);
    }

    /**
     * Sets the number of locks that the registry keeps. If it has more, unused ones are evicted.
     *
     * @param cacheCapacity the number, 100,000 by default
     */
    public void setCacheCapacity(int cacheCapacity) {
        Assert.isTrue(cacheCapacity > 0, "'cacheCapacity' must be greater than 0");
        synchronized (locks) {
            this.cacheCapacity = cacheCapacity;
            evictUnused(cacheCapacity);
        }
    }

    /**
     * The lock of a key.
     *
     * @param lockKey a {@link String}
     * @return the same lock as long as the registry keeps it
     * @throws CannotAcquireLockException when as many locks as the registry keeps are held
     * @throws IllegalArgumentException when the key is no string
     */
    @Override
    public FencedDistributedLock obtain(Object lockKey) {
        Assert.isInstanceOf(String.class, lockKey);
        String key = (String) lockKey;
        synchronized (locks) {
            RegistryLock lock = locks.get(key);
            if (lock == null) {
                evictUnused(cacheCapacity - 1);
                if (locks.size() >= cacheCapacity) {
                    throw new CannotAcquireLockException("There are already " + cacheCapacity
                            + " unique Redis locks acquired in the application from " + this
                            + ". Cannot obtain more at the moment.");
                }
                lock = new RegistryLock(this, key);
                locks.put(key, lock);
            }
            return lock;
        }
    }

    /**
     * Removes locks that are not held. Their acquisition fails from then on, also by a thread that obtained one of them
     * before; obtain a fresh one.
     *
     * @param age the least time since the last acquisition in milliseconds; of a lock that was never acquired, since it
     *     was first obtained
     */
    @Override
    public void expireUnusedOlderThan(long age) {
        long now = System.currentTimeMillis();
        synchronized (locks) {
            locks.values().removeIf(lock -> now - lock.lockedAt() >= age && !lock.isHeldInThisProcess());
        }
    }

    /**
     * Sets the lease of a lock that this registry holds, in any thread, to the registry's lease from now on.
     *
     * @param lockKey the key
     * @throws IllegalStateException when the lock is not held, or is lost
     * @throws redislock.LockException when the server could not be reached, or refused
     */
    @Override
    public void renewLock(Object lockKey) {
        renewLock(lockKey, expireAfter);
    }

    /**
     * Sets the lease of a lock that this registry holds, in any thread, to this time from now on.
     *
     * @param lockKey the key
     * @param ttl the lease, 2 ms to a hundred years
     * @throws IllegalStateException when the lock is not held, or is lost
     * @throws redislock.LockException when the server could not be reached, or refused
     */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        RegistryLock lock = kept(lockKey);
        if (lock == null || !lock.renew(ttl)) {
            throw new IllegalStateException("Could not renew mutex at " + lockKey);
        }
    }

    /**
     * Refuses later acquisitions. Locks that are held can still be unlocked, and the client is not closed: declare it
     * as a bean, so that it is closed after this registry and releases what is still held.
     */
    @Override
    public void destroy() {
        isDestroyed = true;
    }

    @Override
    public String toString() {
        return "FencedLockRegistry{registryKey=" + registryKey + '}';
    }

    /** The default lease. */
    Duration expireAfter() {
        return expireAfter;
    }

    /** The server's key of a lock. */
    String pathOf(String key) {
        return registryKey + ':' + key;
    }

    /** The client's lock for an acquisition with this lease. */
    FencedLock clientLock(String path, Duration lease) {
        LockOptions options = LockOptions.defaults().lease(lease);
        if (!isRenewing) {
            options = options.fixedLease().margin(Duration.ZERO);
        }
        Consumer<Lost> callback = onLost;
        if (callback != null) {
            options = options.onLost(callback);
        }
        return client.lock(path, options);
    }

    /** Refuses a lock that another object may have replaced: it would not be re-entrant together with that one. */
    void requireKept(RegistryLock lock, String key) {
        if (isDestroyed) {
            throw new IllegalStateException(this + " is destroyed.");
        }
        if (kept(key) != lock) {
            throw new IllegalStateException("The lock '" + key + "' was evicted from the exhausted cache. "
                    + "(Or it was unused, and removed by expireUnusedOlderThan.) Obtain a fresh one from " + this);
        }
    }

    private @Nullable RegistryLock kept(Object key) {
        synchronized (locks) {
            return locks.get(key);
        }
    }

    private void evictUnused(int size) {
        Iterator<RegistryLock> eldest = locks.values().iterator();
        while (locks.size() > size && eldest.hasNext()) {
            if (!eldest.next().isHeldInThisProcess()) {
                eldest.remove();
            }
        }
    }
}
