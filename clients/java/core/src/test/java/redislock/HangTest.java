package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Attempts of one owner at a server that hangs. What an earlier attempt has left unsettled is no other holder. */
class HangTest {
    private static final Duration WAIT = Duration.ofMillis(200);

    private final TestServer server = TestServer.start();
    private final LockClient client =
            LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(600)).build();

    @AfterEach
    void close() {
        try (server) {
            server.resume();
            client.close();
        }
    }

    private static void assertNoAnswer(String what, Executable attempt, Duration bound) {
        long start = System.nanoTime();
        assertThrows(LockConnectionException.class, attempt, what);
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(took <= bound.toMillis() + 600 + 2_000, what + " took " + took);
    }

    @Test
    void every_attempt_at_a_hung_server_is_an_error() throws Exception {
        FencedLock lock = client.lock("thread");
        lock.lock();
        lock.unlock();
        MultiLock both = client.multiLock(client.lock("a"), client.lock("b"));
        LockOptions named = LockOptions.defaults().owner("me");
        FencedLock owned = client.lock("owner", named);
        FencedLock bound = client.lock("session", named.session());
        LockSemaphore permits = client.semaphore("semaphore", named.limit(1));
        server.pause();
        for (int i = 0; i < 3; i++) {
            String what = " " + i;
            assertNoAnswer("thread" + what, () -> lock.tryLock(WAIT.toMillis(), TimeUnit.MILLISECONDS), WAIT);
            assertNoAnswer("thread at once" + what, lock::tryLock, Duration.ZERO);
            assertNoAnswer("several" + what, () -> both.tryLock(WAIT.toMillis(), TimeUnit.MILLISECONDS), WAIT);
            assertNoAnswer("owner" + what, () -> owned.acquireWithin(WAIT), WAIT);
            assertNoAnswer("session" + what, () -> bound.acquireWithin(WAIT), WAIT);
            assertNoAnswer("permit" + what, permits::tryAcquire, Duration.ZERO);
        }
        server.resume();
        for (FencedLock each : List.of(lock, client.lock("a"), client.lock("b"))) {
            awaitLock(each);
        }
    }

    /** The lock is free: an attempt succeeds or fails, but does not report another holder. */
    private static void awaitLock(FencedLock lock) {
        Waiting.waitFor("an answer", () -> {
            try {
                assertTrue(lock.tryLock(), "held by no other owner");
                return true;
            } catch (LockConnectionException notSettled) {
                return false;
            }
        });
        lock.unlock();
    }

    @Test
    void an_unanswered_unlock_is_no_other_holder() throws Exception {
        try (LockClient hasty =
                LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(400)).build()) {
            FencedLock lock = hasty.readWriteLock("k").writeLock();
            lock.lock();
            server.pause();
            assertThrows(LockConnectionException.class, lock::unlock);
            assertNoAnswer("again", () -> lock.tryLock(WAIT.toMillis(), TimeUnit.MILLISECONDS), WAIT);
            server.resume();
            awaitLock(lock);
        }
    }

    @Test
    void a_reentry_that_cannot_extend_the_lease_is_not_counted() throws Exception {
        FencedLock lock = client.lock("k");
        lock.lock(Duration.ofSeconds(30));
        server.pause();
        assertNoAnswer("re-entry", () -> lock.tryLock(WAIT, Duration.ofSeconds(60)), WAIT);
        assertEquals(1, lock.getHoldCount());
        server.resume();
        lock.unlock();
        assertEquals(0L, server.call("EXISTS", "k"));
    }

    @Test
    void the_undoing_of_an_exclusive_request_ends_no_hold_of_a_reader() throws Exception {
        try (LockClient hasty =
                LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(400)).build()) {
            hasty.lock("warm").acquire().release();
            server.pause();
            assertThrows(LockConnectionException.class, hasty.lock("k")::tryLock);
            server.resume();
            FencedLock read = hasty.readWriteLock("k").readLock();
            read.lock();
            // sleep: the request is undone twice more, at the latest after the response timeout
            Thread.sleep(800);
            assertTrue(read.isLocked());
            read.unlock();
        }
    }
}
