package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.jspecify.annotations.Nullable;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** What is told of acquisitions, holds and losses. */
class ObserverTest {
    private static final Duration HELD = Duration.ofMillis(120);

    /** An event. */
    private record Event(String what, LockObserver.Subject lock, Duration span, @Nullable Object detail) {}

    private final List<Event> events = new CopyOnWriteArrayList<>();
    private final List<String> threads = new CopyOnWriteArrayList<>();
    private final LockObserver observer = new LockObserver() {
        private void add(String what, Subject lock, Duration span, @Nullable Object detail) {
            threads.add(Thread.currentThread().getName());
            events.add(new Event(what, lock, span, detail));
        }

        @Override
        public void asked(Subject lock) {
            add("asked", lock, Duration.ZERO, null);
        }

        @Override
        public void answered(Subject lock, boolean granted, Duration waited, @Nullable RuntimeException error) {
            add(granted ? "granted" : "refused", lock, waited, error);
        }

        @Override
        public void released(Subject lock, Duration held) {
            add("released", lock, held, null);
        }

        @Override
        public void lost(Subject lock, LostReason reason) {
            add("lost", lock, Duration.ZERO, reason);
        }

        @Override
        public void late(Subject lock, Duration by) {
            add("late", lock, by, null);
        }
    };
    private final TestServer server = TestServer.start();
    private final LockClient client = LockClient.builder(server.address()).observer(observer).build();

    @AfterEach
    void close() {
        try (server) {
            client.close();
        }
        threads.forEach(name -> assertTrue(name.startsWith("redis-lock-callback"), name));
        events.forEach(event -> assertEquals(1, events.stream().filter(
                each -> each.lock().equals(event.lock()) && each.what().equals("asked")).count(), "" + event.lock()));
        events.stream().filter(event -> event.what().equals("asked")).forEach(event -> assertEquals(1,
                events.stream().filter(each -> each.lock().equals(event.lock())
                        && List.of("granted", "refused").contains(each.what())).count(), "" + event.lock()));
    }

    private List<Event> await(String what, int count) {
        Waiting.waitFor(count + " " + what, () -> all(what).size() >= count);
        assertEquals(count, all(what).size());
        return all(what);
    }

    private List<Event> all(String what) {
        return events.stream().filter(event -> event.what().equals(what)).toList();
    }

    private static void assertAbout(Duration expected, Duration found) {
        assertTrue(found.compareTo(expected) >= 0 && found.compareTo(expected.plus(Waiting.PATIENCE)) < 0, "" + found);
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
        Guard second = wait.get(60, TimeUnit.SECONDS).orElseThrow();
        second.close();
        await("asked", 2);
        List<Event> granted = await("granted", 2);
        assertEquals(0, granted.stream().filter(event -> event.span().isZero()).count());
        assertAbout(HELD, granted.stream().map(Event::span).max(Duration::compareTo).orElseThrow());
        assertAbout(HELD, await("released", 2).stream().map(Event::span).max(Duration::compareTo).orElseThrow());
        assertEquals("k", granted.get(0).lock().name());
        assertEquals("exclusive", granted.get(0).lock().kind());
    }

    @Test
    void what_ends_without_a_grant() throws Exception {
        FencedLock lock = client.lock("k");
        Guard held = lock.acquire();
        assertFalse(lock.tryAcquire().isPresent());
        assertFalse(lock.acquireWithin(Duration.ofMillis(100)).isPresent());
        CompletableFuture<Optional<Guard>> cancelled = lock.acquireAsync(null);
        server.awaitTickets(1);
        cancelled.cancel(true);
        server.call("SET", "text", "x");
        assertThrows(WrongTypeException.class, client.lock("text")::tryAcquire);
        await("asked", 5);
        List<Event> refused = await("refused", 4);
        assertEquals(1, refused.stream().filter(event -> event.detail() instanceof WrongTypeException).count());
        assertEquals(3, refused.stream().filter(event -> event.detail() == null).count());
        held.release();
    }

    @Test
    void a_hold_that_is_left_resumed_or_lost() throws Exception {
        FencedLock lock = client.lock("k", LockOptions.defaults().lease(Duration.ofMillis(900)));
        Guard first = lock.acquire();
        first.leave(Duration.ofMinutes(1));
        await("released", 1);
        Guard second = lock.resume(first.owner(), first.token());
        await("granted", 2);
        server.call("LOCK.BREAK", "k");
        assertEquals(LostReason.TAKEN, await("lost", 1).get(0).detail());
        assertEquals(Released.NOT_HELD, second.release());
        assertEquals(1, all("released").size());
    }

    @Test
    void a_renewal_that_is_late() throws Exception {
        try (Proxy proxy = Proxy.before(server.port());
                LockClient cutOff = LockClient.builder(proxy.address()).observer(observer).build()) {
            LockOptions options = LockOptions.defaults().lease(Duration.ofSeconds(3)).margin(Duration.ZERO);
            Guard guard = cutOff.lock("k", options).acquire();
            proxy.hang(true);
            assertAbout(Duration.ofSeconds(1), await("late", 1).get(0).span());
            assertEquals(LostReason.UNCONFIRMED, await("lost", 1).get(0).detail());
            assertEquals(1, all("late").size());
            proxy.hang(false);
            guard.release();
        }
    }

    @Test
    void a_permit_a_session_and_several_locks() throws Exception {
        client.semaphore("s").limit(1).acquire().release();
        client.lock("session", LockOptions.defaults().session()).acquire().release();
        client.multiLock(client.lock("a"), client.lock("b")).acquire().release();
        client.readWriteLock("both").readLock().acquire().release();
        List<Event> released = await("released", 5);
        assertEquals(List.of("exclusive", "exclusive", "exclusive", "read", "semaphore"),
                released.stream().map(event -> event.lock().kind()).sorted().toList());
        await("granted", 5);
    }
}
