package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Waits: their order, and what they survive. */
class WaitTest {
    /** Waits for one lock, one after another in the queue; each that is granted is noted and given back. */
    private static final class Line {
        final FencedLock lock;
        final ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
        final List<CompletableFuture<?>> waits = new ArrayList<>();
        final AtomicInteger inside = new AtomicInteger();
        final AtomicInteger together = new AtomicInteger();

        Line(FencedLock lock) {
            this.lock = lock;
        }

        void join(TestServer server, int count) {
            for (int i = 0; i < count; i++) {
                int number = waits.size();
                waits.add(lock.acquireAsync(Duration.ofSeconds(30)).thenCompose(granted -> granted(number, granted)));
                long queued = waits.size();
                server.awaitTickets(queued);
            }
        }

        private CompletableFuture<Released> granted(int number, Optional<Guard> granted) {
            Guard guard = granted.orElseThrow();
            if (inside.incrementAndGet() > 1) {
                together.incrementAndGet();
            }
            order.add(number);
            inside.decrementAndGet();
            return guard.releaseAsync();
        }

        void awaitAll() throws Exception {
            CompletableFuture.allOf(waits.toArray(CompletableFuture<?>[]::new)).get(25, TimeUnit.SECONDS);
            assertEquals(0, together.get(), "two holders at once");
            assertEquals(IntStream.range(0, waits.size()).boxed().toList(), List.copyOf(order));
        }
    }

    @Test
    void many_waits_are_granted_in_order_over_two_connections() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            Line line = new Line(lock);
            line.join(server, 60);
            assertEquals(2, server.clients().size());
            first.release();
            line.awaitAll();
            assertEquals(2, client.statistics().connections());
        }
    }

    /** The requests of a wait that another owner's release ends. */
    private static long requestsOfWait(TestServer server, FencedLock mine, FencedLock others) {
        Guard held = others.tryAcquire().orElseThrow();
        long before = acquires(server);
        CompletableFuture<Optional<Guard>> waiting = mine.acquireAsync(Duration.ofMinutes(5));
        server.awaitTickets(1);
        held.release();
        waiting.join().orElseThrow().release();
        return acquires(server) - before;
    }

    private static long acquires(TestServer server) {
        return Long.parseLong(
                server.infoField("commandstats", "cmdstat_lock.acquire").replaceFirst("calls=(\\d+),.*", "$1"));
    }

    @Test
    void a_wait_after_another_one_begins_in_the_queue() {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address());
                LockClient other = Clients.create(server.address())) {
            FencedLock mine = client.lock("k");
            // One that asks, one that waits, one that confirms the message; on a slow machine perhaps more.
            assertTrue(requestsOfWait(server, mine, other.lock("k")) >= 3);
            Waiting.waitFor("a wait of two requests", () -> requestsOfWait(server, mine, other.lock("k")) == 2);
            mine.tryAcquire().orElseThrow().release();
            assertTrue(requestsOfWait(server, mine, other.lock("k")) >= 3);
        }
    }

    @Test
    void a_free_lock_at_which_the_last_one_waited_is_granted_at_once() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address());
                LockClient other = Clients.create(server.address())) {
            FencedLock mine = client.lock("k");
            Waiting.waitFor("a wait of two requests", () -> requestsOfWait(server, mine, other.lock("k")) == 2);
            long waits = client.statistics().waits();
            mine.acquire().release();
            assertEquals(waits, client.statistics().waits());
            server.awaitTickets(0);
            assertTrue(requestsOfWait(server, mine, other.lock("k")) >= 3);
        }
    }

    @Test
    void a_replica_is_an_error_at_once_also_where_the_last_one_waited() {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address());
                LockClient other = Clients.create(server.address())) {
            FencedLock mine = client.lock("k");
            Waiting.waitFor("a wait of two requests", () -> requestsOfWait(server, mine, other.lock("k")) == 2);
            server.call("REPLICAOF", "127.0.0.1", "1");
            RefusedException refused = assertTimeoutPreemptively(Duration.ofSeconds(20),
                    () -> assertThrows(RefusedException.class, () -> mine.acquireWithin(Duration.ofMinutes(1))));
            assertEquals("READONLY", refused.code(), "there is no other server to ask");
            server.call("REPLICAOF", "NO", "ONE");
        }
    }

    @Test
    void a_killed_subscription_loses_no_wait_and_keeps_the_order() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            Line line = new Line(lock);
            line.join(server, 40);
            assertEquals(1, server.killClients(each -> !each.get("sub").equals("0")));
            Waiting.waitFor("a new subscription", Duration.ofSeconds(5),
                    () -> server.clients().stream().anyMatch(each -> !"0".equals(each.get("sub"))));
            Waiting.waitFor("the tickets", () -> server.stat("tickets") == 40);
            first.release();
            // Once more, while they are granted.
            server.killClients(each -> !each.get("sub").equals("0"));
            line.awaitAll();
        }
    }

    @Test
    void killed_connections_lose_no_wait_and_keep_the_order() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            Line line = new Line(lock);
            line.join(server, 40);
            assertEquals(2, server.killClients(each -> true));
            Waiting.waitFor("new connections", () -> server.clients().size() == 2);
            first.release();
            line.awaitAll();
        }
    }

    private static LockClient impatient(Proxy proxy, long millis) {
        return LockClient.builder(proxy.address()).responseTimeout(Duration.ofMillis(millis)).build();
    }

    @Test
    void a_user_with_channels_waits_with_tickets() throws Exception {
        try (TestServer server = TestServer.builder().users().start()) {
            try (LockClient client = Clients.create(server.address("app", "change-me-app"))) {
                FencedLock lock = client.lock("lock:k");
                Guard first = lock.acquire();
                Line line = new Line(lock);
                line.join(server, 5);
                first.release();
                line.awaitAll();
            }
        }
    }

    @Test
    void a_subscription_that_has_gone_silent_is_replaced() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = impatient(proxy, 800)) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            Line line = new Line(lock);
            line.join(server, 10);
            // From the next probe on nothing comes on that connection, the message of the grant neither.
            proxy.holdReplyTo("SUBSCRIBE");
            Waiting.waitFor("the probe", proxy::hasDelayed);
            first.release();
            line.awaitAll();
            proxy.letGo();
            assertTrue(client.statistics().connections() >= 3);
        }
    }

    @Test
    void a_connection_that_has_gone_silent_is_replaced() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = impatient(proxy, 4_000)) {
            FencedLock lock = client.lock("k");
            lock.lock();
            lock.unlock();
            proxy.holdReplyTo("LOCK.ACQUIRE");
            Guard guard = lock.acquire();
            assertEquals("1", server.call("HGET", "k", guard.owner()));
            assertEquals(Released.YES, guard.release());
            proxy.letGo();
        }
    }

    @Test
    void an_acquire_whose_reply_is_lost_holds_once() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            FencedLock lock = client.lock("k");
            for (String lost : new String[] {"LOCK.ACQUIRE", "NOTIFY"}) {
                Guard holder = lost.equals("NOTIFY") ? lock.acquire() : null;
                proxy.swallowReplyTo(lost);
                CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(Duration.ofSeconds(20));
                Waiting.waitFor("the request", proxy::hasSwallowed);
                if (holder != null) {
                    holder.release();
                }
                Guard guard = wait.get(10, TimeUnit.SECONDS).orElseThrow();
                assertEquals("1", server.call("HGET", "k", guard.owner()));
                assertEquals(Released.YES, guard.release());
                assertEquals(0L, server.stat("tickets"));
            }
        }
    }

    @Test
    void a_lost_message_is_found_by_asking_again() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = impatient(proxy, 600);
                LockClient other = Clients.create(server.address())) {
            FencedLock lock = client.lock("k", LockOptions.defaults().lease(Duration.ofSeconds(5)));
            Guard first = other.lock("k").acquire();
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            server.awaitTickets(1);
            // Everything stands still behind the proxy: the message is in a connection that the client gives up.
            proxy.hang(true);
            first.release();
            // sleep: longer than the response timeout of 600 ms
            Thread.sleep(900);
            proxy.hang(false);
            Guard guard = wait.get(10, TimeUnit.SECONDS).orElseThrow();
            assertTrue(guard.validFor().compareTo(Duration.ofMillis(1)) > 0);
            guard.release();
        }
    }

    @Test
    void a_forged_message_grants_nothing() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            server.awaitTickets(1);
            String channel = channel(server);
            List<String> forged =
                    List.of("granted 1 1", "granted 99 2", "timeout 1", "failed MOVED 1", "x", "granted 1");
            for (String text : forged) {
                server.call("PUBLISH", channel, text);
            }
            // sleep: the client has time to believe one of the messages: it must not
            Thread.sleep(200);
            assertFalse(wait.isDone());
            Waiting.waitFor("the ticket", () -> server.stat("tickets") == 1);
            first.release();
            assertEquals(Released.YES, wait.get(5, TimeUnit.SECONDS).orElseThrow().release());
        }
    }

    private static String channel(TestServer server) {
        List<?> channels = (List<?>) server.call("PUBSUB", "CHANNELS", "lock:tickets:*");
        return String.valueOf(channels.get(0));
    }

    @Test
    void a_restart_loses_no_wait() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            lock.acquire();
            List<CompletableFuture<Optional<Guard>>> waits = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                waits.add(lock.acquireAsync(null));
            }
            server.awaitTickets(10);
            server.restart();
            AtomicInteger granted = new AtomicInteger();
            for (CompletableFuture<Optional<Guard>> wait : waits) {
                wait.thenAccept(guard -> {
                    granted.incrementAndGet();
                    guard.orElseThrow().close();
                });
            }
            Waiting.waitFor("all grants", () -> granted.get() == 10);
        }
    }

    @Test
    void a_full_server_and_a_broken_queue_end_or_hold_up_waits() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k");
            Guard first = lock.acquire();
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            server.awaitTickets(1);
            server.call("CONFIG", "SET", "maxmemory", "1");
            server.call("REPLICAOF", "127.0.0.1", "1");
            server.call("REPLICAOF", "NO", "ONE");
            Waiting.waitFor("refusals", () -> String.valueOf(server.line("INFO errorstats")).contains("errorstat_OOM"));
            assertFalse(wait.isDone());
            server.call("CONFIG", "SET", "maxmemory", "0");
            server.awaitTickets(1);
            server.call("LOCK.BREAK", "k", "PURGE");
            Exception failed = assertThrows(Exception.class, () -> wait.get(5, TimeUnit.SECONDS));
            assertEquals("LOCKBROKEN", ((RefusedException) failed.getCause()).code());
            first.close();
        }
    }

    @Test
    void a_user_without_channels_cannot_wait() {
        try (TestServer server = TestServer.builder().users().start();
                LockClient client = Clients.create(server.address("app", "change-me-app"))) {
            server.call("ACL", "SETUSER", "app", "resetchannels");
            FencedLock lock = client.lock("lock:k");
            Guard first = lock.tryAcquire().orElseThrow();
            assertThrows(PermissionException.class, lock::acquire);
            first.release();
        }
    }

    @Test
    void a_bounded_call_returns_within_its_own_bound_and_the_response_timeout() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(600)).build()) {
            FencedLock lock = client.lock("warm");
            lock.lock();
            lock.unlock();
            server.pause();
            try {
                for (int i = 0; i < 2; i++) {
                    FencedLock other = client.lock("k" + i);
                    assertRefused(900, () -> other.tryLock(300, TimeUnit.MILLISECONDS));
                    assertRefused(600, other::tryAcquire);
                }
            } finally {
                server.resume();
            }
            client.settled(Duration.ofSeconds(10));
            assertNull(server.call("LOCK.INFO", "k0"));
            assertNull(server.call("LOCK.INFO", "k1"));
        }
    }

    /** "Not granted" would mean that another owner holds the lock. */
    @Test
    void a_wait_whose_server_hangs_at_its_end_is_an_error() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(600)).build()) {
            server.call("LOCK.ACQUIRE", "k", "other");
            FencedLock lock = client.lock("k");
            Thread pauses = new Thread(() -> {
                server.awaitTickets(1);
                server.pause();
            });
            pauses.start();
            try {
                assertThrows(LockConnectionException.class, () -> lock.tryLock(3, TimeUnit.SECONDS));
            } finally {
                pauses.join();
                server.resume();
            }
        }
    }

    /** The attempt fails within so many milliseconds, but for two seconds on a machine with other work. */
    private static LockConnectionException assertRefused(long bound, Executable attempt) {
        long start = System.nanoTime();
        LockConnectionException error = assertThrows(LockConnectionException.class, attempt);
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(took < bound + 2_000, "took " + took);
        return error;
    }

    @Test
    void a_server_that_cannot_be_reached_is_an_error_at_once_with_the_words_of_the_transport() {
        Map<String, String> words = Map.of("127.0.0.1:1", "Connection refused", "no-such.invalid:1", "no-such.invalid");
        words.forEach((host, text) -> {
            LockClient client = LockClient.create("redis://" + host);
            try {
                FencedLock lock = client.lock("k");
                for (Executable attempt : List.<Executable>of(lock::lock, lock::tryLock, lock::acquire,
                        () -> lock.tryLock(30, TimeUnit.SECONDS), () -> client.latch("l").await())) {
                    LockConnectionException error = assertRefused(0, attempt);
                    assertTrue(error.getMessage().contains(text), error.getMessage());
                }
            } finally {
                long start = System.nanoTime();
                client.close();
                assertTrue(System.nanoTime() - start < 2_500_000_000L, "nothing is awaited");
            }
        });
    }

    @Test
    void many_threads_never_hold_together() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client =
                LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1)).build()) {
            FencedLock lock = client.lock("k");
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger granted = new AtomicInteger();
            List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                Thread thread = new Thread(() -> {
                    try {
                        long last = 0;
                        for (int n = 0; n < 20; n++) {
                            if (lock.tryLock(60, TimeUnit.SECONDS)) {
                                assertEquals(1, inside.incrementAndGet());
                                assertTrue(lock.token() > last);
                                last = lock.token();
                                granted.incrementAndGet();
                                inside.decrementAndGet();
                                lock.unlock();
                            }
                        }
                    } catch (Throwable failure) {
                        failures.add(failure);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), failures);
            assertEquals(320, granted.get());
        }
    }
}
