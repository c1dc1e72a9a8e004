package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.scheduling.concurrent.SimpleAsyncTaskScheduler;
import redislock.LockLostException;
import redislock.Lost;
import redislock.testing.Conn;
import redislock.testing.Waiting;

/** Leases, re-entry, losses and renewals of the locks of a registry. */
class FencedLockRegistryTest {
    private final Registries its = new Registries();
    private final FencedLockRegistry registry = its.registry;

    @AfterEach
    void close() {
        its.close();
    }

    @Test
    void key_and_lease_are_those_of_the_replaced_registry() {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock();
        assertTrue(its.leaseLeft() > 55_000 && its.leaseLeft() <= 60_000, "a lease of 60 s");
        assertTrue(lock.validFor().toMillis() > 55_000);
        lock.unlock();
        assertEquals(-2, its.leaseLeft());
    }

    @Test
    void tokens_rise() {
        FencedDistributedLock lock = registry.obtain("foo");
        long last = 0;
        for (int i = 0; i < 10; i++) {
            lock.lock();
            assertTrue(lock.token() > last);
            last = lock.token();
            lock.unlock();
        }
        assertThrows(IllegalStateException.class, lock::token);
        assertThrows(IllegalStateException.class, lock::validFor);
    }

    @Test
    void own_leases() throws InterruptedException {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock(Duration.ofSeconds(300));
        assertTrue(its.leaseLeft() > 290_000);
        lock.unlock();
        assertTrue(lock.tryLock(Duration.ofSeconds(1), Duration.ofSeconds(400)));
        assertTrue(its.leaseLeft() > 390_000);
        lock.unlock();
        assertThrows(IllegalArgumentException.class, () -> lock.lock(Duration.ofMillis(1)));
        assertFalse(its.server.line("LOCK.INFO reg:foo") instanceof Conn.Failure);
        lock.lock();
        lock.unlock();
    }

    @Test
    void a_thread_nests_its_holds() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        assertSame(lock, registry.obtain("foo"));
        assertNotSame(lock, registry.obtain("bar"));
        lock.lock();
        long token = lock.token();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        assertEquals(token, lock.token());
        for (int i = 0; i < 3; i++) {
            lock.unlock();
            assertFalse(Registries.isFree(lock));
        }
        lock.unlock();
        assertTrue(Registries.isFree(lock));
    }

    @Test
    void a_nested_hold_extends_the_lease_and_never_shortens_it() {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock(Duration.ofSeconds(10));
        lock.lock(Duration.ofSeconds(300));
        assertTrue(its.leaseLeft() > 290_000);
        lock.lock(Duration.ofSeconds(10));
        assertTrue(its.leaseLeft() > 290_000);
        lock.unlock();
        lock.unlock();
        lock.unlock();
    }

    @Test
    void a_lost_hold_is_not_entered_again() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock();
        its.server.line("LOCK.BREAK reg:foo");
        Exception failure = assertThrows(CannotAcquireLockException.class, lock::tryLock);
        assertInstanceOf(LockLostException.class, failure.getCause());
        assertThrows(CannotAcquireLockException.class, lock::lock);
        assertEquals(-2, its.leaseLeft());
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertThrows(IllegalStateException.class, lock::unlock);
        assertTrue(Registries.isFree(lock));
    }

    @Test
    void a_lease_that_is_over_shows_at_the_unlock() throws Exception {
        FencedDistributedLock lock = its.other(100).obtain("foo");
        lock.lock();
        its.awaitEndOfLease();
        FencedDistributedLock second = registry.obtain("foo");
        assertTrue(second.tryLock());
        Exception failure = assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertTrue(failure.getMessage().startsWith("Lock was released in the store due to expiration."));
        assertFalse(Registries.isFree(lock), "the second hold is untouched");
        second.unlock();
    }

    @Test
    void losses_are_reported() {
        List<Lost> losses = new CopyOnWriteArrayList<>();
        FencedLockRegistry losing = its.other(50);
        losing.setOnLost(losses::add);
        FencedDistributedLock lock = losing.obtain("foo");
        lock.lock();
        long token = lock.token();
        Waiting.waitFor("the loss", () -> !losses.isEmpty());
        assertEquals("reg:foo", losses.get(0).name());
        assertEquals(token, losses.get(0).token());
        its.awaitEndOfLease();
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void leases_are_renewed_if_that_is_set() throws Exception {
        FencedLockRegistry renewing = its.other(1_000);
        renewing.setRenewing(true);
        holdForThreeRenewals(renewing);
    }

    @Test
    void a_scheduler_of_renewals_sets_it() throws Exception {
        FencedLockRegistry renewing = its.other(1_000);
        try (SimpleAsyncTaskScheduler scheduler = new SimpleAsyncTaskScheduler()) {
            renewing.setRenewalTaskScheduler(scheduler);
            holdForThreeRenewals(renewing);
        }
        assertThrows(IllegalArgumentException.class, () -> renewing.setRenewalTaskScheduler(null));
    }

    private void holdForThreeRenewals(FencedLockRegistry renewing) throws Exception {
        FencedDistributedLock lock = renewing.obtain("foo");
        lock.lock();
        Waiting.waitFor("renewals", () -> its.server.stat("renewals") >= 4);
        lock.lock();
        assertFalse(Registries.isFree(registry.obtain("foo")));
        lock.unlock();
        lock.unlock();
    }

    @Test
    void any_thread_renews_a_held_lock() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        assertThrows(IllegalStateException.class, () -> registry.renewLock("foo"));
        assertThrows(IllegalStateException.class, () -> registry.renewLock("unknown"));
        lock.lock(Duration.ofSeconds(10));
        registry.renewLock("foo");
        assertTrue(its.leaseLeft() > 55_000);
        Registries.elsewhere(() -> {
            registry.renewLock("foo", Duration.ofSeconds(300));
            return null;
        });
        assertTrue(its.leaseLeft() > 290_000);
        its.server.line("LOCK.BREAK reg:foo");
        Exception failure = assertThrows(IllegalStateException.class, () -> registry.renewLock("foo"));
        assertTrue(failure.getMessage().contains("Could not renew mutex at foo"));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void only_the_holder_unlocks() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock();
        Exception failure = Registries.elsewhere(() -> assertThrows(IllegalStateException.class, lock::unlock));
        assertEquals("You do not own lock at reg:foo", failure.getMessage());
        lock.unlock();
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }

    @Test
    void two_registries_exclude_each_other_in_one_thread() throws InterruptedException {
        FencedDistributedLock first = registry.obtain("foo");
        FencedDistributedLock second = its.other().obtain("foo");
        first.lock();
        assertFalse(second.tryLock());
        assertFalse(second.tryLock(50, TimeUnit.MILLISECONDS));
        first.unlock();
        assertTrue(second.tryLock());
        second.unlock();
    }

    @Test
    void tasks_run_under_the_lock() throws Exception {
        assertEquals("result", registry.executeLocked("foo", () -> {
            assertTrue(its.leaseLeft() > 0);
            return "result";
        }));
        FencedDistributedLock second = its.other().obtain("foo");
        second.lock();
        assertThrows(TimeoutException.class,
                () -> registry.executeLocked("foo", Duration.ofMillis(50), () -> Boolean.TRUE));
        second.unlock();
    }

    @Test
    void a_destroyed_registry_refuses_acquisitions_and_still_unlocks() {
        FencedDistributedLock lock = registry.obtain("foo");
        lock.lock();
        registry.destroy();
        FencedDistributedLock another = registry.obtain("bar");
        assertThrows(CannotAcquireLockException.class, another::lock);
        lock.unlock();
        assertEquals(-2, its.leaseLeft());
    }

    @Test
    void arguments() {
        assertThrows(IllegalArgumentException.class, () -> registry.obtain(42));
        assertThrows(IllegalArgumentException.class, () -> registry.obtain(null));
        assertThrows(IllegalArgumentException.class, () -> new FencedLockRegistry(null, "reg"));
        assertThrows(IllegalArgumentException.class, () -> new FencedLockRegistry(its.client, null));
        assertThrows(IllegalArgumentException.class, () -> its.other(1));
        assertThrows(IllegalArgumentException.class, () -> registry.setCacheCapacity(0));
        assertEquals("FencedLockRegistry{registryKey=reg}", registry.toString());
    }

    @Test
    void the_lock_of_a_thread_that_has_ended_is_granted_again() throws Exception {
        for (boolean renews : new boolean[] {false, true}) {
            FencedLockRegistry registry = new FencedLockRegistry(its.client, "ended" + renews, 1_500);
            registry.setRenewing(renews);
            Thread thread = new Thread(() -> registry.obtain("name").lock());
            thread.start();
            thread.join();
            assertFalse(registry.obtain("name").tryLock(), "until the lease of the hold is over");
            assertTrue(registry.obtain("name").tryLock(20, TimeUnit.SECONDS));
            registry.obtain("name").unlock();
        }
    }
}
