package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The durations of waits and holds. */
class ObserverTest {
    private static final Duration HELD = Duration.ofMillis(120);

    private final List<Duration> waits = new CopyOnWriteArrayList<>();
    private final List<Duration> holds = new CopyOnWriteArrayList<>();
    private final List<String> threads = new CopyOnWriteArrayList<>();
    private final TestServer server = TestServer.start();
    private final LockClient client = LockClient.builder(server.address()).observer(new LockObserver() {
        @Override
        public void waited(Duration wait) {
            threads.add(Thread.currentThread().getName());
            waits.add(wait);
        }

        @Override
        public void held(Duration hold) {
            threads.add(Thread.currentThread().getName());
            holds.add(hold);
        }
    }).build();

    @AfterEach
    void close() {
        try (server) {
            client.close();
        }
    }

    private static void assertAbout(Duration expected, Duration found) {
        assertTrue(found.compareTo(expected) >= 0 && found.compareTo(expected.plusSeconds(3)) < 0, "" + found);
    }

    @Test
    void a_wait_and_two_holds() throws Exception {
        FencedLock lock = client.lock("k");
        Guard first = lock.acquire();
        CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
        server.awaitTickets(1);
        // sleep: the work of the holder, which is measured
        Thread.sleep(HELD.toMillis());
        first.release();
        Guard second = wait.get(5, TimeUnit.SECONDS).orElseThrow();
        second.close();
        Waiting.waitFor("the calls", () -> waits.size() == 1 && holds.size() == 2);
        assertAbout(HELD, waits.get(0));
        assertAbout(HELD, holds.get(0));
        threads.forEach(name -> assertTrue(name.startsWith("redis-lock-callback"), name));
    }

    @Test
    void a_refused_wait_and_a_lost_hold_are_not_reported() throws Exception {
        FencedLock lock = client.lock("k");
        Guard broken = lock.acquire();
        assertFalse(lock.acquireWithin(Duration.ofMillis(100)).isPresent());
        server.call("LOCK.BREAK", "k");
        assertEquals(Released.NOT_HELD, broken.release());
        Guard left = lock.acquire();
        left.leave(Duration.ofMillis(2));
        Guard last = lock.acquireWithin(Waiting.PATIENCE).orElseThrow();
        last.release();
        Waiting.waitFor("the calls", () -> holds.size() == 1);
        assertTrue(waits.size() <= 1, "of the last one, if it came before the end of the lease");
    }

    @Test
    void a_permit_a_session_and_several_locks() throws Exception {
        client.semaphore("s").limit(1).acquire().release();
        client.lock("session", LockOptions.defaults().session()).acquire().release();
        client.multiLock(client.lock("a"), client.lock("b")).acquire().release();
        Waiting.waitFor("the calls", () -> holds.size() == 4);
        assertEquals(List.of(), waits);
    }
}
