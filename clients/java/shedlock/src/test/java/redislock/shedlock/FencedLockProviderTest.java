package redislock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockAssert;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.KeepAliveLockProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.LockClient;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.WrongTypeException;
import redislock.testing.Readme;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Keys, leases and releases of a provider's locks. */
class FencedLockProviderTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final String KEY = "job-lock:default:job";

    private final TestServer server = TestServer.start();
    private final LockClient client =
            LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(20)).build();
    private final FencedLockProvider provider = new FencedLockProvider(client);

    @AfterEach
    void close() {
        try (server) {
            client.close();
        }
    }

    @Test
    void keys_are_those_of_the_replaced_providers() {
        SimpleLock lock = lock(MINUTE, Duration.ZERO);
        assertTrue(leaseLeft(KEY) > 55_000 && leaseLeft(KEY) <= 60_000);
        lock.unlock();
        assertEquals(-2, leaseLeft(KEY));

        new FencedLockProvider(client, "test").lock(job(MINUTE, Duration.ZERO)).orElseThrow();
        assertTrue(leaseLeft("job-lock:test:job") > 55_000);
        new FencedLockProvider(client, "test", "lock:{jobs}").lock(job(MINUTE, Duration.ZERO)).orElseThrow();
        assertTrue(leaseLeft("lock:{jobs}:test:job") > 55_000);
    }

    @Test
    void an_early_unlock_leaves_the_lock_for_its_least_time() {
        lock(MINUTE, Duration.ofSeconds(20)).unlock();
        assertTrue(leaseLeft(KEY) > 15_000 && leaseLeft(KEY) <= 20_000);
        assertTrue(provider.lock(job(MINUTE, Duration.ZERO)).isEmpty());
        assertEquals(0, client.statistics().holds());
        client.close();
        assertTrue(leaseLeft(KEY) > 15_000, "the end of the client does not release it");
    }

    @Test
    void the_least_time_counts_from_the_acquisition() {
        SimpleLock lock = lock(MINUTE, Duration.ofMillis(50));
        Waiting.waitFor("the end of the least time", () -> leaseLeft(KEY) < 59_900);
        lock.unlock();
        assertEquals(-2, leaseLeft(KEY));
    }

    @Test
    void a_late_unlock_does_not_end_the_next_lock() {
        SimpleLock late = lock(Duration.ofMillis(500), Duration.ZERO);
        awaitEndOfLease();
        FencedSimpleLock next = lock(MINUTE, Duration.ZERO);
        late.unlock();
        assertTrue(leaseLeft(KEY) > 0);
        SimpleLock later = provider.lock(new LockConfiguration(Instant.now(), "other", MINUTE, MINUTE)).orElseThrow();
        server.line("LOCK.BREAK job-lock:default:other");
        later.unlock();
        assertEquals(-2, leaseLeft("job-lock:default:other"));
        next.unlock();
    }

    @Test
    void the_lease_is_not_renewed() {
        lock(Duration.ofMillis(500), Duration.ZERO);
        awaitEndOfLease();
        assertEquals(0, server.stat("renewals"));
    }

    @Test
    void an_extended_lock_keeps_its_token() {
        FencedSimpleLock lock = lock(MINUTE, Duration.ZERO);
        long token = lock.token();
        SimpleLock extended = lock.extend(Duration.ofMinutes(5), Duration.ofMinutes(2)).orElseThrow();
        assertTrue(leaseLeft(KEY) > 290_000);
        assertEquals(token, ((FencedSimpleLock) extended).token());
        assertThrows(IllegalStateException.class, lock::unlock);
        extended.unlock();
        assertTrue(leaseLeft(KEY) > 110_000 && leaseLeft(KEY) <= 120_000);
        server.line("LOCK.BREAK " + KEY);
        FencedSimpleLock next = lock(MINUTE, Duration.ZERO);
        assertTrue(next.token() > token);
        server.line("LOCK.BREAK " + KEY);
        assertEquals(Optional.empty(), next.extend(MINUTE, Duration.ZERO));
        FencedSimpleLock over = lock(Duration.ofMillis(500), Duration.ZERO);
        Waiting.waitFor("the loss", () -> client.statistics().losses() == 2);
        assertEquals(Optional.empty(), over.extend(MINUTE, Duration.ZERO));
        Waiting.waitFor("the end of the holds", () -> client.statistics().holds() == 0);
    }

    @Test
    void a_kept_alive_lock_is_extended() {
        // ShedLock extends a lock of this wrapper after each half of its lease, which is at least 30 s.
        ScheduledExecutorService hurried = new ScheduledThreadPoolExecutor(1) {
            @Override
            public ScheduledFuture<?> scheduleAtFixedRate(Runnable task, long delay, long period, TimeUnit unit) {
                return super.scheduleAtFixedRate(task, 10, 10, TimeUnit.MILLISECONDS);
            }
        };
        try {
            KeepAliveLockProvider alive = new KeepAliveLockProvider(provider, hurried);
            SimpleLock lock = alive.lock(job(MINUTE, Duration.ZERO)).orElseThrow();
            Waiting.waitFor("extensions", () -> server.stat("renewals") >= 3);
            lock.unlock();
            assertEquals(-2, leaseLeft(KEY));
        } finally {
            hurried.shutdownNow();
        }
    }

    @Test
    void one_executor_runs_a_task_at_a_time() throws Throwable {
        LockingTaskExecutor one = new DefaultLockingTaskExecutor(provider);
        LockingTaskExecutor other = new DefaultLockingTaskExecutor(new FencedLockProvider(client));
        AtomicInteger runs = new AtomicInteger();
        one.executeWithLock((Runnable) () -> {
            LockAssert.assertLocked();
            LockExtender.extendActiveLock(Duration.ofMinutes(3), Duration.ZERO);
            assertTrue(leaseLeft(KEY) > 170_000);
            // In this thread ShedLock would run it without asking the provider.
            CompletableFuture.runAsync(
                    () -> other.executeWithLock((Runnable) runs::incrementAndGet, job(MINUTE, Duration.ZERO))).join();
            runs.incrementAndGet();
        }, job(MINUTE, Duration.ZERO));
        assertEquals(1, runs.get());
        assertEquals(-2, leaseLeft(KEY));
        assertTrue(other.executeWithLock(runs::incrementAndGet, job(MINUTE, Duration.ZERO)).wasExecuted());
    }

    @Test
    void a_short_interruption_fails_no_attempt() {
        server.kill();
        CompletableFuture<Optional<SimpleLock>> attempt =
                CompletableFuture.supplyAsync(() -> provider.lock(job(MINUTE, Duration.ZERO)));
        Waiting.waitFor("an attempt that failed", () -> client.statistics().acquisitionsFailed() > 0);
        server.startAgain();
        assertTrue(attempt.join().isPresent());
    }

    @Test
    void a_server_that_stays_down_is_an_error() {
        server.kill();
        long start = System.nanoTime();
        assertThrows(LockException.class, () -> provider.lock(job(MINUTE, Duration.ZERO)));
        // For the response timeout (ReleaseTest of the client has the figure), and not for the lease of an hour.
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(30));
        server.startAgain();
        lock(MINUTE, Duration.ZERO).unlock();
    }

    @Test
    void a_refusal_is_an_error_at_once() {
        server.line("SET " + KEY + " string");
        long start = System.nanoTime();
        assertThrows(WrongTypeException.class, () -> provider.lock(job(MINUTE, Duration.ZERO)));
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(3));
    }

    @Test
    void an_unlock_does_not_wait_for_a_server_that_is_down() {
        SimpleLock lock = lock(Duration.ofHours(1), Duration.ZERO);
        server.pause();
        long start = System.nanoTime();
        lock.unlock();
        // For the response timeout (ReleaseTest of the client has the figure), and not for the lease of an hour.
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(30));
        server.resume();
        awaitEndOfLease();
        assertEquals(1, server.stat("grants_released"));
    }

    @Test
    void an_unlock_that_fails_leaves_nothing_behind_when_the_lease_is_over() {
        try (LockClient own = LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(1)).build()) {
            SimpleLock lock = new FencedLockProvider(own).lock(job(Duration.ofSeconds(4), Duration.ofSeconds(3)))
                    .orElseThrow();
            server.pause();
            assertThrows(LockConnectionException.class, lock::unlock);
            server.resume();
            assertEquals(1, own.statistics().holds());
            Waiting.waitFor("the end of the hold", () -> own.statistics().holds() == 0);
        }
    }

    @Test
    void a_lost_reply_to_an_unlock_is_no_error() {
        SimpleLock lock = lock(MINUTE, Duration.ZERO);
        server.killClients(connection -> true);
        lock.unlock();
        assertEquals(-2, leaseLeft(KEY));
    }

    @Test
    void arguments() {
        assertThrows(IllegalArgumentException.class, () -> provider.lock(job(Duration.ofMillis(1), Duration.ZERO)));
        assertThrows(NullPointerException.class, () -> new FencedLockProvider(null));
        assertThrows(NullPointerException.class, () -> new FencedLockProvider(client, null));
        assertFalse(provider.lock(job(Duration.ofDays(36_500), Duration.ZERO)).isEmpty());
    }

    @Test
    void the_examples_of_the_readme_run() {
        Readme.requireExamplesIn("src/test/java/redislock/shedlock/Example.java");
        Example example = new Example();
        try (LockClient own = example.lockClient(server.address())) {
            example.lockProvider(own).lock(job(MINUTE, Duration.ZERO)).orElseThrow();
            assertTrue(leaseLeft("job-lock:production:job") > 0);
        }
    }

    private FencedSimpleLock lock(Duration atMost, Duration atLeast) {
        return (FencedSimpleLock) provider.lock(job(atMost, atLeast)).orElseThrow();
    }

    private static LockConfiguration job(Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), "job", atMost, atLeast);
    }

    /** The rest of the lease in milliseconds; -2 when nothing holds the lock. */
    private long leaseLeft(String key) {
        return server.line("LOCK.INFO " + key) == null ? -2 : (Long) server.line("PTTL " + key);
    }

    private void awaitEndOfLease() {
        Waiting.waitFor("the end of the lease", () -> leaseLeft(KEY) == -2);
    }
}
