package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Releases that a hung server does not answer: the caller waits for the response timeout, the release goes on. */
class ReleaseTest {
    private static final long TIMEOUT = 600;

    private final TestServer server = TestServer.start();
    private final LockClient client =
            LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(TIMEOUT)).build();

    @AfterEach
    void close() {
        try (server) {
            server.resume();
            client.close();
        }
    }

    private static void assertGivenUp(Executable release) {
        long start = System.nanoTime();
        assertThrows(LockConnectionException.class, release);
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(took >= TIMEOUT - 10 && took < TIMEOUT + 2_000, "took " + took);
    }

    private boolean isHeld(String key) {
        return server.call("LOCK.INFO", key) != null;
    }

    @Test
    void a_grant_whose_reply_was_lost_long_before_the_end_of_the_wait_is_released() throws Exception {
        // By the end the request that was granted can no longer be served.
        LockOptions longLease = LockOptions.defaults().lease(Duration.ofMinutes(10));
        for (LockOptions options : List.of(longLease, longLease.owner("worker-7"))) {
            try (Proxy proxy = Proxy.before(server.port()); LockClient through =
                    LockClient.builder(proxy.address()).responseTimeout(Duration.ofMillis(200)).build()) {
                Guard other = through.lock("other").acquire();
                proxy.refuse(true);
                proxy.swallowReplyTo("LOCK.ACQUIRE");
                assertThrows(LockConnectionException.class,
                        () -> through.lock("k", options).acquireWithin(Duration.ofSeconds(1)));
                assertTrue(proxy.hasSwallowed() && isHeld("k"));
                proxy.refuse(false);
                Waiting.waitFor("its release", () -> !isHeld("k"));
                other.close();
            }
        }
    }

    @Test
    void a_guard_is_released_in_the_background_after_the_response_timeout() throws Exception {
        Guard guard = client.lock("k").acquire();
        server.pause();
        assertGivenUp(guard::release);
        assertGivenUp(guard::release);
        assertEquals(0, client.statistics().releases());
        CompletableFuture<Released> later = guard.releaseAsync();
        assertFalse(later.isDone());
        server.resume();
        assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
        assertEquals(1, client.statistics().releases());
        assertEquals(Released.YES, guard.release(), "the later answer");
        assertEquals(Released.YES, later.get(5, TimeUnit.SECONDS));
        assertFalse(isHeld("k"));
    }

    @Test
    void a_thread_holds_nothing_after_an_unlock_without_an_answer() throws Exception {
        FencedLock lock = client.lock("k");
        lock.lock();
        lock.lock();
        server.pause();
        lock.unlock();
        assertGivenUp(lock::unlock);
        assertFalse(lock.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        server.resume();
        assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
        assertFalse(isHeld("k"));
        // The name of the thread is free when the unanswered release can no longer be served.
        assertTrue(lock.tryLock(5, TimeUnit.SECONDS));
        lock.unlock();
    }

    @Test
    void a_permit_and_several_locks_as_well() throws Exception {
        Permit permit = client.semaphore("s").limit(1).acquire();
        MultiLock both = client.multiLock(client.lock("a"), client.lock("b", LockOptions.defaults().lease(
                Duration.ofSeconds(20))));
        both.lock();
        server.pause();
        assertGivenUp(both::unlock);
        assertGivenUp(permit::release);
        assertThrows(IllegalMonitorStateException.class, both::unlock);
        server.resume();
        assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
        assertEquals(3, client.statistics().releases());
        assertFalse(isHeld("a") || isHeld("b"));
        MultiGuard guard = both.acquire();
        server.pause();
        assertGivenUp(guard::release);
        server.resume();
        assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
        assertEquals(Released.YES, guard.release(), "the later answer");
        assertFalse(isHeld("a") || isHeld("b"));
        assertTrue(client.semaphore("s").tryAcquire().isPresent());
    }

    @Test
    void a_release_without_an_answer_until_the_lease_is_over_is_reported() throws Exception {
        Guard guard = client.lock("k", LockOptions.defaults().lease(Duration.ofSeconds(2))).acquire();
        server.pause();
        assertGivenUp(guard::release);
        List<Unreleased> unreleased = client.settled(Duration.ofSeconds(10));
        assertEquals(1, unreleased.size());
        assertEquals("k", new String(unreleased.get(0).key()));
        assertEquals(1, client.statistics().releasesFailed());
        server.resume();
        Waiting.waitFor("the end of the lease", () -> !isHeld("k"));
    }

    @Test
    void a_release_goes_on_until_the_end_of_a_lease_that_was_perhaps_set() throws Exception {
        try (Proxy proxy = Proxy.before(server.port());
                LockClient hasty =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofMillis(300)).build()) {
            Guard guard = hasty.lock("k", LockOptions.defaults().fixedLease().lease(Duration.ofSeconds(2))).acquire();
            proxy.refuse(true);
            proxy.swallowReplyTo("LOCK.RENEW");
            assertThrows(LockConnectionException.class, () -> guard.renew(Duration.ofMinutes(1)));
            assertThrows(LockConnectionException.class, guard::release);
            // sleep: longer than the first lease and the response timeout
            Thread.sleep(2_200);
            assertTrue(isHeld("k"));
            proxy.refuse(false);
            assertEquals(List.of(), hasty.settled(Duration.ofSeconds(5)));
            assertFalse(isHeld("k"));
        }
    }

    @Test
    void a_refused_release_is_an_error_of_the_caller_alone() throws Exception {
        Guard guard = client.lock("k").acquire();
        server.call("ACL", "SETUSER", "default", "-lock.release");
        assertThrows(PermissionException.class, guard::release);
        assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
        server.call("ACL", "SETUSER", "default", "+lock.release");
    }
}
