package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.dao.CannotAcquireLockException;

/** Which locks a registry keeps. */
class CacheTest {
    private final Registries its = new Registries();
    private final FencedLockRegistry registry = its.registry;

    @AfterEach
    void close() {
        its.close();
    }

    @Test
    void the_least_recently_used_lock_is_evicted() {
        registry.setCacheCapacity(2);
        FencedDistributedLock a = registry.obtain("a");
        FencedDistributedLock b = registry.obtain("b");
        registry.obtain("a");
        registry.obtain("c");
        assertSame(a, registry.obtain("a"));
        assertNotSame(b, registry.obtain("b"));
    }

    @Test
    void an_evicted_lock_is_refused() {
        registry.setCacheCapacity(1);
        FencedDistributedLock a = registry.obtain("a");
        registry.obtain("b");
        Exception failure = assertThrows(CannotAcquireLockException.class, a::lock);
        assertInstanceOf(IllegalStateException.class, failure.getCause());
        assertTrue(failure.getCause().getMessage().startsWith("The lock 'a' was evicted from the exhausted cache."));
        registry.obtain("a");
        assertThrows(CannotAcquireLockException.class, a::tryLock, "another object has its place");
    }

    @Test
    void a_held_lock_is_kept() {
        registry.setCacheCapacity(2);
        FencedDistributedLock a = registry.obtain("a");
        FencedDistributedLock b = registry.obtain("b");
        a.lock();
        b.lock();
        Exception failure = assertThrows(CannotAcquireLockException.class, () -> registry.obtain("c"));
        assertTrue(failure.getMessage().startsWith("There are already 2 unique Redis locks acquired"));
        registry.setCacheCapacity(1);
        assertSame(a, registry.obtain("a"));
        b.unlock();
        registry.setCacheCapacity(1);
        assertThrows(CannotAcquireLockException.class, () -> registry.obtain("b"));
        a.unlock();
        assertNotSame(b, registry.obtain("b"));
    }

    @Test
    void unused_locks_expire() {
        FencedDistributedLock held = registry.obtain("held");
        FencedDistributedLock unused = registry.obtain("unused");
        held.lock();
        registry.expireUnusedOlderThan(60_000);
        assertSame(unused, registry.obtain("unused"));
        registry.expireUnusedOlderThan(0);
        Exception failure = assertThrows(CannotAcquireLockException.class, unused::lock);
        assertTrue(failure.getCause().getMessage().contains("removed by expireUnusedOlderThan"));
        assertNotSame(unused, registry.obtain("unused"));
        assertSame(held, registry.obtain("held"));
        held.unlock();
        assertEquals(0, its.server.stat("grants_tracked"));
    }
}
