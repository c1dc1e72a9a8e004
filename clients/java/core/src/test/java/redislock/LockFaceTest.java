package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The face of {@code java.util.concurrent.locks.Lock}: bound to the thread, re-entrant. */
class LockFaceTest {
    private static TestServer server;
    private LockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @BeforeEach
    void open() {
        client = Clients.create(server.address());
    }

    @AfterEach
    void close() {
        client.close();
    }

    @Test
    void a_lock_is_held_by_its_thread_until_it_is_unlocked() {
        FencedLock lock = client.lock("k");
        lock.lock();
        assertTrue(lock.isHeldByCurrentThread() && lock.isLocked());
        assertTrue(lock.token() > 0);
        assertTrue(lock.validFor().compareTo(Duration.ofSeconds(29)) > 0);
        long first = lock.token();
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread() || lock.isLocked());
        assertTrue(lock.tryLock());
        assertTrue(lock.token() > first, "a later grant has a higher token");
        lock.unlock();
    }

    @Test
    void the_owner_has_the_form_of_redisson() {
        FencedLock lock = client.lock("owner");
        lock.lock();
        String owner = lock.guard().owner();
        assertTrue(owner.matches("[0-9a-f-]{36}:" + Thread.currentThread().getId()));
        assertEquals("1", server.call("HGET", "owner", owner));
        lock.unlock();
    }

    @Test
    void a_thread_reenters_without_a_request() {
        FencedLock lock = client.lock("re");
        lock.lock();
        lock.lock();
        FencedLock same = client.lock("re");
        assertTrue(same.tryLock(), "another object for the same key");
        assertEquals(3, lock.getHoldCount());
        assertEquals("1", server.call("HGET", "re", lock.guard().owner()), "the server counts one hold");
        lock.unlock();
        same.unlock();
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertEquals(0, lock.getHoldCount());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void another_thread_is_excluded_and_may_not_unlock() throws Exception {
        FencedLock lock = client.lock("k");
        lock.lock();
        inThread(() -> {
            assertFalse(lock.tryLock());
            assertFalse(lock.tryLock(50, TimeUnit.MILLISECONDS));
            assertFalse(lock.isHeldByCurrentThread());
            assertTrue(lock.isLocked());
            IllegalMonitorStateException refused = assertThrows(IllegalMonitorStateException.class, lock::unlock);
            assertTrue(refused.getMessage().startsWith("attempt to unlock lock, not locked by current thread"));
            assertThrows(IllegalMonitorStateException.class, lock::token);
        });
        lock.unlock();
        inThread(() -> {
            assertTrue(lock.tryLock());
            lock.unlock();
        });
    }

    @Test
    void a_lost_hold_is_not_reentered_and_its_unlock_says_so() {
        FencedLock lock = client.lock("lost", LockOptions.defaults().lease(Duration.ofMillis(1_500)));
        lock.lock();
        lock.lock();
        assertEquals(1L, server.call("LOCK.BREAK", "lost"));
        Waiting.waitFor("the loss", () -> lock.guard().lostReason() == LostReason.TAKEN);
        assertFalse(lock.isHeldByCurrentThread());
        LockLostException nested = assertThrows(LockLostException.class, lock::lock);
        assertEquals(LostReason.TAKEN, nested.lost().reason());
        assertThrows(LockLostException.class, lock::tryLock);
        lock.unlock();
        assertThrows(LockLostException.class, lock::unlock);
        assertEquals(0, lock.getHoldCount());
        lock.lock();
        lock.unlock();
    }

    @Test
    void an_unlock_after_a_loss_that_was_not_noticed_says_so() {
        FencedLock lock = client.lock("unnoticed");
        lock.lock();
        server.call("DEL", "unnoticed");
        LockLostException lost = assertThrows(LockLostException.class, lock::unlock);
        assertEquals("the lock unnoticed was lost: the server says that the grant is over", lost.getMessage());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void a_fixed_lease_ends_and_is_extended_by_a_longer_reentry() throws Exception {
        FencedLock lock = client.lock("fixed");
        lock.lock(Duration.ofSeconds(3));
        assertTrue((long) server.call("PTTL", "fixed") <= 3_000);
        assertTrue(lock.tryLock(Duration.ZERO, Duration.ofSeconds(20)), "re-entered");
        assertTrue((long) server.call("PTTL", "fixed") > 10_000);
        assertTrue(lock.renew(Duration.ofMillis(300)));
        assertEquals(LostReason.UNCONFIRMED, lock.guard().lost().get(5, TimeUnit.SECONDS).reason());
        lock.unlock();
        LockLostException lost = assertThrows(LockLostException.class, lock::unlock);
        assertEquals("the lock fixed was lost: its lease is about to end, and no renewal was confirmed",
                lost.getMessage());
    }

    @Test
    void an_interruption_withdraws_an_interruptible_wait() throws Exception {
        FencedLock lock = client.lock("int");
        lock.lock();
        AtomicReference<Throwable> seen = new AtomicReference<>();
        Thread waiter = new Thread(() -> {
            try {
                lock.lockInterruptibly();
            } catch (Throwable error) {
                seen.set(error);
            }
        });
        waiter.start();
        server.awaitTickets(1);
        waiter.interrupt();
        waiter.join(5_000);
        assertEquals(InterruptedException.class, seen.get().getClass());
        assertEquals(0, server.stat("tickets"), "withdrawn before the exception");
        lock.unlock();
        assertTrue(lock.tryLock());
        lock.unlock();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> lock.tryLock(1, TimeUnit.SECONDS));
    }

    @Test
    void lock_survives_an_interruption_and_restores_it() throws Exception {
        FencedLock lock = client.lock("unint");
        lock.lock();
        AtomicReference<Boolean> wasInterrupted = new AtomicReference<>();
        Thread waiter = new Thread(() -> {
            lock.lock();
            wasInterrupted.set(Thread.interrupted());
            lock.unlock();
        });
        waiter.start();
        server.awaitTickets(1);
        waiter.interrupt();
        // sleep: the interrupted thread has time to go wrong: it must go on waiting
        Thread.sleep(50);
        assertNull(wasInterrupted.get());
        lock.unlock();
        waiter.join(5_000);
        assertEquals(true, wasInterrupted.get());
    }

    @Test
    void the_end_of_its_guard_ends_the_hold_of_a_thread() throws Exception {
        try (LockClient other = Clients.create(server.address())) {
            List<Consumer<Guard>> ends = List.of(Guard::release, Guard::close,
                    guard -> assertTrue(guard.leave(Duration.ofMillis(100))),
                    guard -> guard.releaseAsync().join());
            for (int i = 0; i < ends.size(); i++) {
                FencedLock lock = client.lock("ended" + i);
                FencedLock theirs = other.lock("ended" + i);
                lock.lock();
                lock.lock();
                ends.get(i).accept(lock.guard());
                assertFalse(lock.isHeldByCurrentThread());
                assertEquals(0, lock.getHoldCount());
                assertTrue(theirs.tryLock(5, TimeUnit.SECONDS));
                assertFalse(lock.tryLock(), "held by the other client");
                assertFalse(client.multiLock(lock, client.lock("beside")).tryLock());
                assertThrows(IllegalMonitorStateException.class, lock::unlock);
                theirs.unlock();
                assertTrue(lock.tryLock());
                lock.unlock();
            }
        }
    }

    @Test
    void another_thread_ends_a_hold_by_its_guard() throws Exception {
        FencedLock lock = client.readWriteLock("passed").writeLock();
        lock.lock();
        Guard guard = lock.guard();
        inThread(guard::release);
        assertFalse(lock.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        lock.lock();
        lock.unlock();
    }

    @Test
    void a_call_without_a_hold_names_the_attempt() {
        FencedLock lock = client.lock("free");
        Map<String, Executable> attempts = Map.of("unlock", lock::unlock, "read the token of", lock::token,
                "read the validity of", lock::validFor, "get the guard of", lock::guard,
                "renew", () -> lock.renew(Duration.ofSeconds(1)));
        attempts.forEach((attempt, call) -> assertEquals(
                "attempt to " + attempt + " lock, not locked by current thread: free",
                assertThrows(IllegalMonitorStateException.class, call).getMessage()));
    }

    @Test
    void a_lock_with_a_session_is_not_for_threads() {
        FencedLock lock = client.lock("session", LockOptions.defaults().session());
        List<Executable> calls = List.of(lock::lock, lock::lockInterruptibly, lock::tryLock,
                () -> lock.tryLock(1, TimeUnit.SECONDS), () -> lock.lock(Duration.ofSeconds(1)));
        calls.forEach(call -> assertThrows(UnsupportedOperationException.class, call));
        assertFalse(lock.isLocked());
    }

    @Test
    void an_uninterruptible_wait_keeps_its_place() throws Exception {
        FencedLock lock = client.lock("place");
        Guard guard = lock.acquire();
        List<String> order = new CopyOnWriteArrayList<>();
        List<Thread> waiters = new ArrayList<>();
        for (String name : List.of("interrupted", "second")) {
            Thread waiter = new Thread(() -> {
                Guard granted = lock.acquireUninterruptibly();
                order.add(name + " " + Thread.interrupted());
                granted.release();
            });
            waiters.add(waiter);
            waiter.start();
            server.awaitTickets(waiters.size());
        }
        waiters.get(0).interrupt();
        Waiting.waitFor("the interruption", () -> !waiters.get(0).isInterrupted());
        guard.release();
        for (Thread waiter : waiters) {
            waiter.join(5_000);
        }
        assertEquals(List.of("interrupted true", "second false"), order);
    }

    @Test
    void conditions_are_not_supported() {
        assertThrows(UnsupportedOperationException.class, client.lock("k")::newCondition);
    }

    @Test
    void clients_have_owners_of_their_own() {
        try (LockClient other = Clients.create(server.address())) {
            FencedLock mine = client.lock("two");
            FencedLock theirs = other.lock("two");
            mine.lock();
            assertFalse(theirs.tryLock());
            assertNotEquals(0, mine.getHoldCount());
            mine.unlock();
            assertTrue(theirs.tryLock());
            theirs.unlock();
        }
    }

    interface Body {
        void run() throws Exception;
    }

    /** Runs this in another thread and fails as it fails. */
    static void inThread(Body body) throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable error) {
                failure.set(error);
            }
        });
        thread.start();
        thread.join(20_000);
        if (failure.get() != null) {
            throw new AssertionError(failure.get());
        }
        assertFalse(thread.isAlive());
    }

    @Test
    void the_methods_of_redisson_do_what_its_users_expect() throws Exception {
        FencedLock lock = client.lock("redisson");
        assertEquals(-2, lock.remainTimeToLive());
        assertFalse(lock.forceUnlock());
        assertTrue(lock.tryLock(1, 20, TimeUnit.SECONDS));
        assertTrue(lock.remainTimeToLive() > 10_000 && lock.remainTimeToLive() <= 20_000);
        inThread(() -> assertFalse(lock.tryLock(0, 20, TimeUnit.SECONDS)));
        lock.unlock();
        assertTrue(lock.tryLock(1, -1, TimeUnit.SECONDS), "a lease that is renewed");
        assertTrue(lock.remainTimeToLive() > 20_000);
        assertTrue(lock.forceUnlock());
        assertFalse(lock.isLocked());
        assertThrows(LockLostException.class, lock::unlock);
    }
}
