package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import org.junit.jupiter.api.Test;
import redislock.testing.Conn;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Renewal, and the losses that are reported. */
class LossTest {
    private static final Duration LEASE = Duration.ofSeconds(6);

    @Test
    void a_hold_is_renewed_for_as_long_as_it_lasts() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE)).acquire();
            // Longer than its lease.
            Waiting.waitFor("renewals", () -> client.statistics().renewals() >= 4);
            assertNull(guard.lostReason());
            assertTrue(guard.validFor().toMillis() > 400);
            assertEquals(Released.YES, guard.release());
            assertEquals(0, client.statistics().losses());
        }
    }

    /** The warnings of a logger, by default that of the client. */
    static class Warnings extends Handler implements AutoCloseable {
        final ConcurrentLinkedQueue<String> texts = new ConcurrentLinkedQueue<>();
        private final Logger logger;

        Warnings() {
            this("redislock");
        }

        Warnings(String name) {
            logger = Logger.getLogger(name);
            logger.addHandler(this);
            logger.setUseParentHandlers(false);
        }

        @Override
        public void publish(LogRecord logged) {
            if (logged.getLevel().intValue() >= Level.WARNING.intValue()) {
                texts.add(new SimpleFormatter().formatMessage(logged));
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {
            logger.removeHandler(this);
            logger.setUseParentHandlers(true);
        }
    }

    @Test
    void the_lock_of_a_thread_that_has_ended_is_renewed_and_logged() throws Exception {
        try (TestServer server = TestServer.start(); Warnings warnings = new Warnings()) {
            try (LockClient client = Clients.create(server.address())) {
                FencedLock lock = client.lock("k", LockOptions.defaults().lease(LEASE));
                Thread thread = new Thread(lock::lock, "holder");
                thread.start();
                thread.join(5_000);
                FencedLock own = client.lock("own", LockOptions.defaults().lease(LEASE));
                own.lock();
                Waiting.waitFor("renewals of both", () -> client.statistics().renewals() >= 6);
                assertEquals(List.of("the thread \"holder\" has ended without unlocking k, which is renewed until its "
                        + "client is closed"), List.copyOf(warnings.texts));
                assertFalse(lock.tryLock());
                assertThrows(IllegalMonitorStateException.class, lock::unlock);
                own.unlock();
            }
            assertEquals(0L, server.call("EXISTS", "k"), "released at the end of the client");
        }
    }

    @Test
    void a_hold_that_is_broken_or_deleted_is_lost_at_the_next_renewal() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            ConcurrentLinkedQueue<Lost> told = new ConcurrentLinkedQueue<>();
            LockOptions options = LockOptions.defaults().lease(LEASE).onLost(told::add);
            Guard broken = client.lock("broken", options).acquire();
            Guard deleted = client.lock("deleted", options).acquire();
            Guard retyped = client.lock("retyped", options).acquire();
            server.call("LOCK.BREAK", "broken");
            server.call("DEL", "deleted");
            server.call("SET", "retyped", "x");
            assertEquals(LostReason.TAKEN, broken.lost().get(5, TimeUnit.SECONDS).reason());
            assertEquals(LostReason.TAKEN, deleted.lost().get(5, TimeUnit.SECONDS).reason());
            Lost refused = retyped.lost().get(5, TimeUnit.SECONDS);
            assertEquals(LostReason.REFUSED, refused.reason());
            assertEquals("WRONGTYPE", refused.code());
            Waiting.waitFor("the callbacks", () -> told.size() == 3);
            assertEquals(3, client.statistics().losses());
            assertEquals(Duration.ZERO, broken.validFor());
            assertEquals(Released.NOT_HELD, broken.release());
            assertEquals(LostReason.TAKEN, assertThrows(LockLostException.class, deleted::close).lost().reason());
            deleted.close();
            assertThrows(LockLostException.class, retyped::close);
            Waiting.waitFor("the releases", () -> client.statistics().holds() == 0);
        }
    }

    @Test
    void the_loss_is_told_before_the_lease_ends_when_the_server_stands_still_or_dies() throws Exception {
        for (boolean dies : new boolean[] {false, true}) {
            try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
                client.lock("warm").acquire().release();
                LockOptions options = LockOptions.defaults().lease(Duration.ofSeconds(3));
                long start = System.nanoTime();
                Guard guard = client.lock("k", options.margin(Duration.ofMillis(1_500))).acquire();
                if (dies) {
                    server.kill();
                } else {
                    server.pause();
                }
                Lost lost = guard.lost().get(5, TimeUnit.SECONDS);
                long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
                assertEquals(LostReason.UNCONFIRMED, lost.reason());
                assertTrue(took >= 1_400 && took < 3_000, "told after " + took);
                assertTrue(guard.validFor().toMillis() > 0, "the time left to stop");
                if (dies) {
                    server.startAgain();
                } else {
                    server.resume();
                }
                assertThrows(LockLostException.class, guard::close);
            }
        }
    }

    @Test
    void a_loss_to_which_nothing_listens_is_a_warning() throws Exception {
        try (TestServer server = TestServer.start(); Warnings warnings = new Warnings();
                LockClient client = Clients.create(server.address())) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE)).acquire();
            server.call("LOCK.BREAK", "k");
            Waiting.waitFor("the warning", () -> warnings.texts.stream().anyMatch(
                    text -> text.startsWith("the lock k was lost: the server says")));
            assertThrows(LockLostException.class, guard::close);
        }
    }

    @Test
    void waits_that_are_cut_off_are_a_warning() throws Exception {
        try (TestServer server = TestServer.start(); Warnings warnings = new Warnings();
                LockClient client = Clients.create(server.address())) {
            Guard first = client.lock("k").acquire();
            CompletableFuture<Optional<Guard>> wait = client.lock("k").acquireAsync(null);
            server.awaitTickets(1);
            server.kill();
            Waiting.waitFor("the warning", () -> warnings.texts.stream().anyMatch(
                    text -> text.startsWith("1 waits of this client have been cut off from 127.0.0.1:")
                            && text.contains("Connection refused")));
            server.startAgain();
            wait.get(20, TimeUnit.SECONDS).orElseThrow().release();
            first.releaseAsync();
        }
    }

    @Test
    void several_locks_are_not_held_when_one_that_was_held_is_lost_meanwhile() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client = Clients.create(server.address());
                LockClient other = Clients.create(server.address())) {
            FencedLock held = client.lock("held", LockOptions.defaults().lease(LEASE));
            FencedLock missing = client.lock("missing");
            Guard theirs = other.lock("missing").acquire();
            held.lock();
            Guard guard = held.guard();
            CompletableFuture<Void> done = CompletableFuture.runAsync(() -> {
                server.awaitTickets(1);
                server.call("LOCK.BREAK", "held");
                guard.lost().join();
                theirs.release();
            });
            assertThrows(LockLostException.class, client.multiLock(held, missing)::lock);
            done.get(10, TimeUnit.SECONDS);
            assertEquals(1, held.getHoldCount());
            assertEquals(0, missing.getHoldCount());
            Waiting.waitFor("the other is given back", () -> server.call("LOCK.INFO", "missing") == null);
            assertThrows(LockLostException.class, held::unlock);
        }
    }

    @Test
    void a_passing_failure_is_survived() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE)).acquire();
            for (int i = 0; i < 4; i++) {
                proxy.drop();
                // sleep: a third of the lease, in which a renewal is due
                Thread.sleep(400);
            }
            assertNull(guard.lostReason());
            assertEquals(Released.YES, guard.release());
        }
    }

    @Test
    void a_hung_renewal_delays_no_other_loss() throws Exception {
        try (TestServer hung = TestServer.start();
                TestServer alive = TestServer.start();
                LockClient ofHung = Clients.create(hung.address());
                LockClient ofAlive = Clients.create(alive.address())) {
            LockOptions options = LockOptions.defaults().margin(Duration.ofMillis(1_500));
            Guard one = ofHung.lock("one", options.lease(Duration.ofSeconds(4))).acquire();
            Guard two = ofHung.lock("two", options.lease(Duration.ofSeconds(3))).acquire();
            Guard three = ofAlive.lock("three", LockOptions.defaults().lease(LEASE)).acquire();
            long start = System.nanoTime();
            hung.pause();
            two.lost().get(5, TimeUnit.SECONDS);
            long second = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            one.lost().get(5, TimeUnit.SECONDS);
            long first = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(second < 3_000 && first < 4_000, "told after " + second + " and " + first);
            assertNull(three.lostReason());
            hung.resume();
        }
    }

    @Test
    void a_fixed_lease_is_not_renewed_and_its_end_is_told() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            LockOptions options = LockOptions.defaults().lease(Duration.ofMillis(600)).fixedLease();
            long start = System.nanoTime();
            Guard guard = client.lock("k", options.margin(Duration.ZERO)).acquire();
            assertEquals(LostReason.UNCONFIRMED, guard.lost().get(5, TimeUnit.SECONDS).reason());
            assertTrue(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start) > 500);
            assertEquals(0, client.statistics().renewals());
            Guard extended = client.lock("e", options.lease(Duration.ofMillis(1_500))).acquire();
            assertTrue(extended.renew(Duration.ofSeconds(20)));
            // sleep: longer than the former lease
            Thread.sleep(1_600);
            assertNull(extended.lostReason());
            extended.release();
        }
    }

    @Test
    void a_callback_of_a_loss_may_use_the_client() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            AtomicReference<Object> result = new AtomicReference<>();
            CountDownLatch done = new CountDownLatch(1);
            FencedLock other = client.lock("other");
            client.lock("k", LockOptions.defaults().lease(Duration.ofMillis(600)).onLost(lost -> {
                other.lock();
                result.set(Thread.currentThread().getName());
                other.unlock();
                done.countDown();
            })).acquire();
            server.call("DEL", "k");
            assertTrue(done.await(5, TimeUnit.SECONDS));
            assertTrue(String.valueOf(result.get()).startsWith("redis-lock-callback-"));
        }
    }

    @Test
    void a_stage_that_blocks_does_not_hold_the_callback_of_its_loss_up() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            CountDownLatch told = new CountDownLatch(1);
            CountDownLatch blocked = new CountDownLatch(1);
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE).onLost(lost -> told.countDown()))
                    .acquire();
            CompletableFuture<Boolean> stage = guard.lost().thenApply(lost -> {
                blocked.countDown();
                try {
                    return told.await(20, TimeUnit.SECONDS);
                } catch (InterruptedException ended) {
                    return false;
                }
            });
            server.call("LOCK.BREAK", "k");
            assertTrue(blocked.await(20, TimeUnit.SECONDS));
            assertTrue(told.await(5, TimeUnit.SECONDS));
            assertTrue(stage.get(5, TimeUnit.SECONDS));
        }
    }

    @Test
    void a_callback_that_fails_is_logged_and_changes_nothing() throws Exception {
        try (TestServer server = TestServer.start(); Warnings warnings = new Warnings();
                LockClient client = LockClient.builder(server.address()).executor(ForkJoinPool.commonPool()).build()) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE).onLost(lost -> {
                throw new IllegalStateException("of the program");
            })).acquire();
            server.call("LOCK.BREAK", "k");
            assertEquals(LostReason.TAKEN, guard.lost().get(20, TimeUnit.SECONDS).reason());
            Waiting.waitFor("the warning", () -> List.copyOf(warnings.texts).equals(
                    List.of("the callback of a loss has failed")));
            assertEquals(Released.NOT_HELD, guard.release());
        }
    }

    /** Two locks: while the program blocks after the loss of one, the other is renewed, and its loss is told. */
    private static void assertRenewed(LockClient client, TestServer server, LockOptions first, CountDownLatch blocked,
            BooleanSupplier isTold, LockOptions second) throws Exception {
        LockOptions quick = LockOptions.defaults().lease(Duration.ofSeconds(3));
        client.lock("first", first.lease(quick.lease())).acquire();
        Guard other = client.lock("second", second.lease(quick.lease())).acquire();
        server.call("LOCK.BREAK", "first");
        assertTrue(blocked.await(20, TimeUnit.SECONDS));
        long before = client.statistics().renewals();
        Waiting.waitFor("renewals beyond the lease", () -> client.statistics().renewals() >= before + 4);
        assertNull(other.lostReason());
        server.call("LOCK.BREAK", "second");
        Waiting.waitFor("the other loss", isTold);
    }

    @Test
    void a_log_that_blocks_delays_no_renewal_and_no_loss() throws Exception {
        CountDownLatch blocked = new CountDownLatch(1);
        CountDownLatch end = new CountDownLatch(1);
        CountDownLatch told = new CountDownLatch(1);
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address());
                Warnings warnings = new Warnings() {
                    @Override
                    public void publish(LogRecord logged) {
                        blocked.countDown();
                        try {
                            end.await();
                        } catch (InterruptedException ended) {
                            Thread.currentThread().interrupt();
                        }
                        super.publish(logged);
                    }
                }) {
            try {
                assertRenewed(client, server, LockOptions.defaults(), blocked, () -> told.getCount() == 0,
                        LockOptions.defaults().onLost(lost -> told.countDown()));
            } finally {
                end.countDown();
            }
            Waiting.waitFor("the warning", () -> warnings.texts.stream().anyMatch(text -> text.contains("first")));
        }
    }

    @Test
    void an_executor_that_blocks_or_runs_in_the_calling_thread_delays_no_renewal() throws Exception {
        for (boolean isInCaller : new boolean[] {false, true}) {
            CountDownLatch blocked = new CountDownLatch(1);
            CountDownLatch end = new CountDownLatch(1);
            CountDownLatch told = new CountDownLatch(1);
            Consumer<Lost> block = lost -> {
                blocked.countDown();
                try {
                    end.await();
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            };
            try (TestServer server = TestServer.start();
                    LockClient client = LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1))
                            .executor(isInCaller ? Runnable::run : task -> block.accept(null)).build()) {
                try {
                    assertRenewed(client, server, LockOptions.defaults().onLost(isInCaller ? block : lost -> {}),
                            blocked, () -> client.statistics().losses() == 2 && (!isInCaller || told.getCount() == 0),
                            LockOptions.defaults().onLost(lost -> told.countDown()));
                } finally {
                    end.countDown();
                }
            }
        }
    }

    @Test
    void after_a_release_no_loss_is_told() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE)).acquire();
            CompletableFuture<Lost> lost = guard.lost();
            guard.release();
            // sleep: longer than the lease
            Thread.sleep(1_300);
            assertFalse(lost.isDone());
            assertEquals(0, client.statistics().losses());
        }
    }

    @Test
    void a_lost_reply_to_a_release_counts_as_released() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            Guard guard = client.lock("k").acquire();
            proxy.swallowReplyTo("LOCK.RELEASE");
            assertEquals(Released.YES, guard.release());
            assertTrue(proxy.hasSwallowed());
        }
    }

    @Test
    void a_late_acquire_grants_nothing() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient other = Clients.create(server.address());
                LockClient client =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(4)).build()) {
            FencedLock lock = client.lock("k");
            lock.lock();
            lock.unlock();
            Guard blocking = other.lock("k").acquire();
            // The client gives the connection up after two seconds, and withdraws its wait after 3.2 s on another one.
            proxy.delay("LOCK.ACQUIRE");
            assertTrue(lock.acquireWithin(Duration.ofMillis(3_200)).isEmpty());
            assertTrue(proxy.hasDelayed());
            assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
            blocking.release();
            proxy.letGo();
            Waiting.waitFor("the late request", () -> server.infoField("lock", "lock_finals_refused").equals("1"));
            assertNull(server.call("LOCK.INFO", "k"));
        }
    }

    @Test
    void a_loss_is_reported_once_although_the_executor_fails() throws Exception {
        AtomicInteger refusals = new AtomicInteger();
        ConcurrentLinkedQueue<Lost> told = new ConcurrentLinkedQueue<>();
        try (TestServer server = TestServer.start();
                LockClient client = LockClient.builder(server.address()).executor(task -> {
                    refusals.incrementAndGet();
                    throw new IllegalStateException("no thread");
                }).build()) {
            Guard guard = client.lock("k", LockOptions.defaults().lease(LEASE).onLost(told::add)).acquire();
            server.call("LOCK.BREAK", "k");
            assertEquals(LostReason.TAKEN, guard.lost().get(5, TimeUnit.SECONDS).reason());
            Waiting.waitFor("the callback", () -> told.size() == 1);
            assertEquals(2, refusals.get(), "of the future and of the callback");
            assertEquals(Released.NOT_HELD, guard.releaseAsync().get(5, TimeUnit.SECONDS));
            assertEquals(1, told.size());
        }
    }

    @Test
    void a_session_ends_with_its_connection() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            ConcurrentLinkedQueue<Lost> told = new ConcurrentLinkedQueue<>();
            FencedLock lock = client.lock("k", LockOptions.defaults().session().onLost(told::add));
            Guard guard = lock.tryAcquire().orElseThrow();
            assertTrue(guard.validFor().toMillis() > 8_000 && guard.validFor().toMillis() < 10_000);
            assertTrue(lock.acquireWithin(Duration.ofMillis(100)).isEmpty());
            CompletableFuture<Optional<Guard>> next = lock.acquireAsync(null);
            server.awaitTickets(1);
            List<?> holders = (List<?>) Conn.map(server.call("LOCK.INFO", "k")).get("holders");
            Object id = Conn.map(holders.get(0)).get("client-id");
            server.killClients(each -> each.get("id").equals(String.valueOf(id)));
            assertEquals(LostReason.DISCONNECTED, guard.lost().get(5, TimeUnit.SECONDS).reason());
            assertEquals(Duration.ZERO, guard.validFor());
            Optional<Guard> granted = next.get(5, TimeUnit.SECONDS);
            assertEquals(Released.NOT_HELD, guard.release());
            assertEquals(Released.YES, granted.orElseThrow().release());
            Waiting.waitFor("the connections of the sessions to end", () -> server.stat("sessions") == 0);
            Waiting.waitFor("the callback", () -> told.size() == 1);
            assertEquals(1, client.statistics().losses());
        }
    }
}
