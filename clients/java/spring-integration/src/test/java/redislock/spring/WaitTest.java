package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.dao.CannotAcquireLockException;
import redislock.LockClient;
import redislock.LockConnectionException;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Waits for a lock that another registry holds: bounds, interrupts, restarts, contention. */
class WaitTest {
    private final Registries its = new Registries();
    private final FencedLockRegistry registry = its.registry;
    private final FencedDistributedLock held = its.other().obtain("foo");

    @AfterEach
    void close() {
        its.close();
    }

    @Test
    void an_unlock_grants_the_next_waiter() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        held.lock();
        CompletableFuture<Long> token = new CompletableFuture<>();
        Registries.inThread(() -> {
            lock.lock();
            token.complete(lock.token());
            lock.unlock();
        });
        its.server.awaitTickets(1);
        long former = held.token();
        held.unlock();
        assertTrue(token.get(20, TimeUnit.SECONDS) > former);
    }

    @Test
    void a_bounded_wait_ends_in_time() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        held.lock();
        long start = System.nanoTime();
        assertFalse(lock.tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(lock.tryLock(Duration.ofMillis(100), Duration.ofSeconds(1)));
        assertFalse(lock.tryLock(-1, TimeUnit.SECONDS));
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(millis >= 200 && millis < 10_000, "took " + millis + " ms");
        held.unlock();
        assertTrue(lock.tryLock(Long.MAX_VALUE, TimeUnit.DAYS));
        assertFalse(Registries.elsewhere(() -> lock.tryLock(50, TimeUnit.MILLISECONDS)), "held in this process");
        lock.unlock();
    }

    @Test
    void a_re_entry_at_a_hung_server_ends_with_the_response_timeout_and_is_not_counted() throws Exception {
        try (LockClient client =
                LockClient.builder(its.server.address()).responseTimeout(Duration.ofSeconds(4)).build()) {
            FencedDistributedLock lock = new FencedLockRegistry(client, "reg").obtain("foo");
            lock.lock();
            its.server.pause();
            long start = System.nanoTime();
            assertThrows(CannotAcquireLockException.class, lock::tryLock);
            assertThrows(CannotAcquireLockException.class, () -> lock.tryLock(100, TimeUnit.MILLISECONDS));
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(millis < 20_000, "the response timeout of each call; took " + millis + " ms");
            its.server.resume();
            lock.unlock();
            assertThrows(IllegalStateException.class, lock::unlock);
        }
    }

    @Test
    void an_interrupt_ends_an_interruptible_wait() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        held.lock();
        CompletableFuture<Exception> first = new CompletableFuture<>();
        Thread waiter = Registries.inThread(
                () -> first.complete(assertThrows(InterruptedException.class, lock::lockInterruptibly)));
        its.server.awaitTickets(1);
        CompletableFuture<Exception> second = new CompletableFuture<>();
        Thread follower = Registries.inThread(() -> second.complete(
                assertThrows(InterruptedException.class, () -> lock.tryLock(1, TimeUnit.HOURS))));
        Waiting.waitFor("a second waiter", () -> follower.getState() == Thread.State.TIMED_WAITING);
        follower.interrupt();
        second.get(20, TimeUnit.SECONDS);
        waiter.interrupt();
        first.get(20, TimeUnit.SECONDS);
        its.server.awaitTickets(0);
        held.unlock();
        assertTrue(Registries.isFree(lock));
    }

    @Test
    void an_interrupt_does_not_end_lock_nor_unlock() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        held.lock();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread waiter = Registries.inThread(() -> {
            lock.lock();
            lock.unlock();
            interrupted.complete(Thread.currentThread().isInterrupted());
        });
        its.server.awaitTickets(1);
        waiter.interrupt();
        held.unlock();
        assertTrue(interrupted.get(20, TimeUnit.SECONDS));
        assertEquals(-2, its.leaseLeft());
    }

    @Test
    void an_interrupted_lock_keeps_its_place() throws Exception {
        held.lock();
        List<String> order = new CopyOnWriteArrayList<>();
        List<Thread> waiters = new ArrayList<>();
        for (FencedLockRegistry one : List.of(registry, its.other())) {
            FencedDistributedLock lock = one.obtain("foo");
            String name = one == registry ? "interrupted" : "second";
            waiters.add(Registries.inThread(() -> {
                lock.lock();
                order.add(name);
                lock.unlock();
            }));
            its.server.awaitTickets(waiters.size());
        }
        waiters.get(0).interrupt();
        Waiting.waitFor("the interruption", () -> !waiters.get(0).isInterrupted());
        its.server.awaitTickets(2);
        held.unlock();
        for (Thread waiter : waiters) {
            waiter.join(Waiting.PATIENCE.toMillis());
        }
        assertEquals(List.of("interrupted", "second"), order);
    }

    @Test
    void an_interrupted_unlock_waits_for_its_reply() throws Exception {
        try (Proxy proxy = Proxy.before(its.server.port()); LockClient client = Registries.patient(proxy.address())) {
            FencedDistributedLock lock = new FencedLockRegistry(client, "reg").obtain("foo");
            CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
            proxy.holdReplyTo("LOCK.RELEASE");
            Thread holder = Registries.inThread(() -> {
                lock.lock();
                Thread.currentThread().interrupt();
                lock.unlock();
                interrupted.complete(Thread.currentThread().isInterrupted());
            });
            Waiting.waitFor("the release", proxy::hasDelayed);
            assertFalse(lock.tryLock(50, TimeUnit.MILLISECONDS), "the thread still has the lock");
            assertTrue(holder.isAlive());
            proxy.letGo();
            assertTrue(interrupted.get(20, TimeUnit.SECONDS));
            assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
            lock.unlock();
        }
    }

    @Test
    void an_unlock_waits_for_the_response_timeout() throws Exception {
        LockClient.Builder builder =
                LockClient.builder(its.server.address()).responseTimeout(Duration.ofSeconds(2));
        try (LockClient client = builder.build()) {
            FencedDistributedLock lock = new FencedLockRegistry(client, "reg").obtain("foo");
            lock.lock();
            its.server.pause();
            long start = System.nanoTime();
            assertThrows(LockConnectionException.class, lock::unlock);
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(millis >= 1_990 && millis < 20_000, "took " + millis + " ms");
            assertThrows(IllegalStateException.class, lock::unlock, "the thread has it no longer");
            its.server.resume();
            assertTrue(client.settled(Waiting.PATIENCE).isEmpty());
            assertEquals(-2, its.leaseLeft());
        }
    }

    @Test
    void a_wait_survives_a_restart_of_the_server() throws Exception {
        FencedDistributedLock lock = registry.obtain("foo");
        held.lock();
        CompletableFuture<Boolean> granted = new CompletableFuture<>();
        Registries.inThread(() -> {
            lock.lock();
            lock.unlock();
            granted.complete(true);
        });
        its.server.awaitTickets(1);
        its.server.restart();
        assertTrue(granted.get(20, TimeUnit.SECONDS));
    }

    @Test
    void a_server_that_is_down_fails_an_attempt() {
        // Nothing is awaited for the response timeout.
        try (LockClient patient =
                LockClient.builder(its.server.address()).responseTimeout(Duration.ofSeconds(60)).build()) {
            FencedDistributedLock lock = new FencedLockRegistry(patient, "reg").obtain("foo");
            lock.lock();
            lock.unlock();
            its.server.kill();
            long start = System.nanoTime();
            assertThrows(CannotAcquireLockException.class, lock::tryLock);
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(20));
            its.server.startAgain();
            lock.lock();
            lock.unlock();
        }
    }

    @Test
    void a_user_without_channels_cannot_wait() throws Exception {
        try (TestServer secured = TestServer.builder().users().start();
                LockClient app = Registries.patient(secured.address("app", "change-me-app"))) {
            secured.call("ACL", "SETUSER", "app", "resetchannels");
            FencedDistributedLock first = new FencedLockRegistry(app, "lock:orders").obtain("42");
            FencedDistributedLock second = new FencedLockRegistry(app, "lock:orders").obtain("42");
            first.lock();
            assertThrows(CannotAcquireLockException.class, second::lock);
            first.unlock();
        }
    }

    @Test
    void contending_threads_of_several_registries_exclude_each_other() throws Exception {
        int registries = 3;
        int threads = 4;
        int rounds = 25;
        AtomicInteger inside = new AtomicInteger();
        List<Long> tokens = new ArrayList<>();
        CountDownLatch done = new CountDownLatch(registries * threads);
        for (int i = 0; i < registries; i++) {
            FencedLockRegistry one = its.other();
            for (int j = 0; j < threads; j++) {
                Registries.inThread(() -> {
                    for (int k = 0; k < rounds; k++) {
                        FencedDistributedLock lock = one.obtain("foo");
                        lock.lock();
                        assertEquals(1, inside.incrementAndGet());
                        tokens.add(lock.token());
                        inside.decrementAndGet();
                        lock.unlock();
                    }
                    done.countDown();
                });
            }
        }
        assertTrue(done.await(20, TimeUnit.SECONDS));
        assertEquals(registries * threads * rounds, tokens.size());
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
    }
}
