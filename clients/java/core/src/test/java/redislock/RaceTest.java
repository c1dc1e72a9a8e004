package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import redislock.internal.Clock;
import redislock.internal.lock.Hold;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** What happens at the same moment: a grant and its cancellation, two renewals, a call and the end of the client. */
class RaceTest {
    private static final LockOptions LONG = LockOptions.defaults().lease(Duration.ofSeconds(60));

    private static void spin(int nanos) {
        long end = System.nanoTime() + nanos;
        while (System.nanoTime() < end) {
            Thread.onSpinWait();
        }
    }

    @Test
    void a_cancellation_beside_the_reply_leaves_no_lock() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            client.lock("first").acquire().release();
            Random random = new Random(7);
            for (int i = 0; i < 4_000; i++) {
                CompletableFuture<Optional<Guard>> grant =
                        client.lock("k" + i, LONG).acquireAsync(Duration.ofSeconds(5));
                spin(random.nextInt(250_000));
                if (!grant.cancel(true)) {
                    grant.get().ifPresent(Guard::close);
                }
            }
            Waiting.waitFor("no lock", Duration.ofSeconds(10), () -> held(server).isEmpty());
            Waiting.waitFor("no hold", () -> client.statistics().holds() == 0);
        }
    }

    private static List<?> held(TestServer server) {
        return (List<?>) ((List<?>) server.call("LOCK.SCAN", 0, "COUNT", 100_000)).get(1);
    }

    @Test
    void a_withdrawal_beside_a_grant_leaves_no_lock() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient holder = Clients.create(server.address());
                LockClient client = Clients.create(server.address())) {
            Random random = new Random(7);
            for (int i = 0; i < 600; i++) {
                Guard guard = holder.lock("k", LONG).acquire();
                LockOptions options = i % 2 == 0 ? LONG : LONG.owner("one");
                CompletableFuture<Optional<Guard>> wait = client.lock("k", options).acquireAsync(null);
                Waiting.waitFor("a place", () -> server.stat("tickets") == 1);
                guard.close();
                spin(random.nextInt(600_000));
                if (!wait.cancel(true)) {
                    wait.get().ifPresent(Guard::close);
                }
                Waiting.waitFor("no lock", Duration.ofSeconds(2), () -> server.call("LOCK.INFO", "k") == null);
            }
            Waiting.waitFor("no hold", () -> client.statistics().holds() == 0);
        }
    }

    @Test
    void closing_beside_grants_leaves_no_lock() throws Exception {
        try (TestServer server = TestServer.start()) {
            for (int round = 0; round < 12; round++) {
                LockClient client = Clients.create(server.address());
                List<Thread> threads = new ArrayList<>();
                for (int i = 0; i < 8; i++) {
                    FencedLock lock = client.lock("k" + i % 3, i < 4 ? LONG : LONG.owner("owner" + i));
                    boolean byThread = i % 2 == 0;
                    threads.add(new Thread(() -> lockUntilClosed(lock, byThread)));
                }
                threads.forEach(Thread::start);
                Waiting.waitFor("grants", () -> client.statistics().acquisitions() > 40);
                client.close();
                assertEquals(List.of(), held(server));
                for (Thread thread : threads) {
                    thread.join(5_000);
                    assertTrue(!thread.isAlive());
                }
            }
        }
    }

    private static void lockUntilClosed(FencedLock lock, boolean byThread) {
        try {
            while (true) {
                if (byThread) {
                    lock.lock();
                    lock.unlock();
                } else {
                    lock.acquire().release();
                }
            }
        } catch (LockClosedException | InterruptedException over) {
            // The end of the client.
        }
    }

    /** A request for both keys waits for the first one, which a round holds that waits for the second one. */
    @Test
    void a_round_gives_way_to_a_request_for_several_keys() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            Guard first = client.lock("a").acquire();
            Guard second = client.lock("b").acquire();
            LockOptions other = LockOptions.defaults().lease(Duration.ofSeconds(20));
            MultiLock round = client.multiLock(client.lock("a", other), client.lock("b"));
            MultiLock request = client.multiLock(client.lock("a"), client.lock("b"));
            CompletableFuture<Void> one = CompletableFuture.runAsync(() -> {
                round.lock();
                round.unlock();
            });
            server.awaitTickets(1);
            CompletableFuture<Void> two = CompletableFuture.runAsync(() -> {
                request.lock();
                request.unlock();
            });
            server.awaitTickets(2);
            first.release();
            Waiting.waitFor("a refusal", () -> server.stat("deadlocks") > 0);
            second.release();
            CompletableFuture.allOf(one, two).get(10, TimeUnit.SECONDS);
        }
    }

    @Test
    void interruptions_of_a_named_wait_leave_no_lock() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("k", LONG);
            lock.acquire().release();
            Thread worker = new Thread(() -> {
                for (int i = 0; i < 2_000; i++) {
                    try {
                        if (lock.tryLock(5, TimeUnit.SECONDS)) {
                            lock.unlock();
                        }
                    } catch (InterruptedException meant) {
                        // Tries again.
                    }
                }
            });
            worker.start();
            Random random = new Random(7);
            while (worker.isAlive()) {
                spin(random.nextInt(400_000));
                worker.interrupt();
            }
            Waiting.waitFor("no lock", Duration.ofSeconds(10), () -> held(server).isEmpty());
            Waiting.waitFor("no hold", () -> client.statistics().holds() == 0);
        }
    }

    @Test
    void a_renewal_in_the_background_does_not_undo_a_longer_lease() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            LockOptions short1 = LockOptions.defaults().lease(Duration.ofMillis(1_500));
            Guard guard = client.lock("k", short1).acquire();
            long renewals = client.statistics().renewals();
            proxy.holdReplyTo("LOCK.RENEW");
            CompletableFuture<Boolean> renewed =
                    CompletableFuture.supplyAsync(() -> guard.renew(Duration.ofSeconds(60)));
            // sleep: past a third of the lease, so that a renewal in the background follows
            Thread.sleep(550);
            proxy.letGo();
            assertTrue(renewed.get(5, TimeUnit.SECONDS));
            Waiting.waitFor("the renewal", () -> client.statistics().renewals() > renewals);
            long left = (Long) server.call("PTTL", "k");
            assertTrue(guard.validFor().toMillis() <= left + 1, guard.validFor() + " of " + left);
            assertEquals(Released.YES, guard.release());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_late_renewal_is_served_before_the_last_lease_is_set(boolean isNote) throws Exception {
        Duration patience = Duration.ofSeconds(40);
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = LockClient.builder(proxy.address()).responseTimeout(patience).build()) {
            Hold hold = (Hold) client.lock("k", LONG.lease(Duration.ofHours(1))).acquire();
            proxy.delay("LOCK.RENEW");
            CompletableFuture<Boolean> renewed = isNote ? CompletableFuture.supplyAsync(() -> hold.note("n"))
                    : hold.renewAsync(Duration.ofHours(1));
            Waiting.waitFor("the renewal", proxy::hasDelayed);
            // It has no reply in time, and is repeated, or fails.
            Clock.advance(isNote ? patience.toNanos() : patience.toNanos() / 2);
            client.network.loop().settle();
            assertEquals(!isNote, renewed.handle((held, failed) -> failed == null && held).get(60, TimeUnit.SECONDS));
            int before = isNote ? 0 : 1;
            CompletableFuture<Boolean> left = hold.startLeave(Duration.ofMinutes(1));
            // What is sent behind it, is served behind it.
            client.lock("other").isLocked();
            proxy.letGo();
            awaitRenewals(server, before + 1);
            Clock.advance(patience.toNanos());
            client.network.loop().settle();
            assertTrue(hold.awaitLeft(left));
            awaitRenewals(server, before + 2);
            long rest = (long) server.call("PTTL", "k");
            assertTrue(rest <= 60_000, "left for " + rest + " ms");
        }
    }

    private static void awaitRenewals(TestServer server, int count) {
        Waiting.waitFor("renewals", () -> {
            String calls = server.infoField("commandstats", "cmdstat_lock.renew");
            return Integer.parseInt(calls.replaceAll("calls=(\\d+),.*", "$1")) >= count;
        });
    }

    @Test
    void a_shorter_lease_counts_before_its_answer() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(20)).build()) {
            Guard guard = client.lock("k", LONG).acquire();
            Guard fixed = client.lock("fixed", LONG.fixedLease()).acquire();
            server.pause();
            CompletableFuture<Boolean> one =
                    CompletableFuture.supplyAsync(() -> guard.renew(Duration.ofMillis(500)));
            CompletableFuture<Boolean> two =
                    CompletableFuture.supplyAsync(() -> fixed.renew(Duration.ofMillis(500)));
            assertEquals(LostReason.UNCONFIRMED, guard.lost().get(5, TimeUnit.SECONDS).reason());
            assertEquals(LostReason.UNCONFIRMED, fixed.lost().get(5, TimeUnit.SECONDS).reason());
            Waiting.waitFor("the end of both", () -> guard.validFor().isZero() && fixed.validFor().isZero());
            assertFalse(one.isDone() || two.isDone());
            server.resume();
            one.handle((is, error) -> 0).get(5, TimeUnit.SECONDS);
            two.handle((is, error) -> 0).get(5, TimeUnit.SECONDS);
        }
    }

    @Test
    void a_renewal_beside_two_changes_of_the_lease_sets_the_later_one() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(20)).build()) {
            Guard guard = client.lock("k", LONG).acquire();
            server.pause();
            CompletableFuture<Boolean> one = guard.renewAsync(Duration.ofSeconds(6));
            CompletableFuture<Boolean> two = guard.renewAsync(Duration.ofSeconds(60));
            // sleep: a third of the shorter lease, so that a renewal is due
            Thread.sleep(2_200);
            server.resume();
            assertTrue(one.get(5, TimeUnit.SECONDS));
            assertTrue(two.get(5, TimeUnit.SECONDS));
            long certain = guard.validFor().toMillis();
            assertTrue(certain > 50_000, "certain for " + certain + " ms");
            long left = (long) server.call("PTTL", "k");
            assertTrue(left > certain - 5_000, "certain for " + certain + " ms, held for " + left + " ms");
            assertEquals(Released.YES, guard.release());
        }
    }

    @Test
    void a_refused_change_of_the_lease_changes_nothing() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            Guard guard = client.lock("k", LONG).acquire();
            server.line("ACL SETUSER default -lock.renew");
            assertThrows(PermissionException.class, () -> guard.renew(Duration.ofMillis(600)));
            assertTrue(guard.validFor().toMillis() > 50_000);
            server.line("ACL SETUSER default +lock.renew");
            assertNull(guard.lostReason());
            assertTrue(guard.renew(Duration.ofMillis(6_000)));
            assertTrue(guard.validFor().toMillis() <= 6_000);
            // sleep: longer than the lease, which is renewed
            Thread.sleep(7_000);
            assertEquals(Released.YES, guard.release());
        }
    }

    @Test
    void a_thread_locks_again_at_once_after_a_lost_reply_to_its_unlock() {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            FencedLock lock = client.lock("k");
            lock.lock();
            long token = lock.token();
            proxy.swallowReplyTo("LOCK.RELEASE");
            lock.unlock();
            assertTrue(lock.tryLock());
            assertTrue(lock.token() > token, "a late release of the former token does not end this hold");
            lock.unlock();
        }
    }

    @Test
    void calls_after_the_end_of_the_client_return() throws Exception {
        try (TestServer server = TestServer.start()) {
            LockClient client = Clients.create(server.address());
            Guard guard = client.lock("k").acquire();
            MultiLock many = client.multiLock(client.lock("a"), client.lock("b"));
            many.lock();
            client.close();
            assertNotNull(guard.releaseAsync().get(5, TimeUnit.SECONDS));
            CompletableFuture<Void> unlocked = new CompletableFuture<>();
            guard.releaseAsync().thenRun(() -> unlocked.complete(null));
            unlocked.get(5, TimeUnit.SECONDS);
            Waiting.waitFor("no hold", () -> client.statistics().holds() == 0);
        }
    }

    @Test
    void an_executor_that_refuses_leaves_no_future_open() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client = LockClient.builder(server.address()).executor(task -> {
                    throw new RejectedExecutionException("full");
                }).build()) {
            Guard guard = client.lock("k").acquireAsync(null).get(5, TimeUnit.SECONDS).orElseThrow();
            server.call("DEL", "k");
            assertTrue(!guard.renew(Duration.ofSeconds(10)));
            assertEquals(LostReason.TAKEN, guard.lost().get(5, TimeUnit.SECONDS).reason());
        }
    }

    /** The locks have different leases, so each is a request of its own, and one is lost while the next one waits. */
    @Test
    void a_round_whose_member_is_lost_starts_anew_and_ends_with_the_client() throws Exception {
        LockOptions short1 = LockOptions.defaults().lease(Duration.ofMillis(900));
        try (TestServer server = TestServer.start();
                LockClient other = Clients.create(server.address());
                LockClient client = Clients.create(server.address())) {
            Guard taken = other.lock("b").acquire();
            MultiLock both = client.multiLock(client.lock("a", short1), client.lock("b"));
            CompletableFuture<Void> first = CompletableFuture.runAsync(both::lock);
            for (int i = 0; i < 3; i++) {
                long losses = client.statistics().losses();
                Waiting.waitFor("the first lock", () -> server.call("LOCK.INFO", "a") != null);
                Waiting.waitFor("a loss", () -> {
                    server.call("LOCK.BREAK", "a");
                    return client.statistics().losses() > losses;
                });
            }
            // The last LOCK.BREAK may have met the lock of the next round.
            long renewals = client.statistics().renewals();
            Waiting.waitFor("a round that holds", () -> client.statistics().renewals() >= renewals + 2);
            taken.release();
            first.get(5, TimeUnit.SECONDS);
            assertEquals(2, client.statistics().holds());
            assertNotNull(server.call("LOCK.INFO", "a"));
            Guard again = other.lock("e").acquire();
            AtomicReference<Throwable> thrown = new AtomicReference<>();
            LockClient closed = Clients.create(server.address());
            MultiLock more = closed.multiLock(closed.lock("d", short1), closed.lock("e"));
            Thread waiter = new Thread(() -> {
                try {
                    more.lock();
                } catch (Throwable error) {
                    thrown.set(error);
                }
            });
            waiter.start();
            // Until the pauses between two rounds are long, so that the client most likely ends during one.
            Waiting.waitFor("losses", () -> {
                server.call("LOCK.BREAK", "d");
                return closed.statistics().losses() >= 10;
            });
            closed.close();
            waiter.join(5_000);
            assertTrue(!waiter.isAlive());
            assertEquals(LockClosedException.class, thrown.get().getClass());
            again.release();
        }
    }

    @Test
    void a_late_request_for_several_locks_grants_nothing() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(4)).build()) {
            MultiLock both = client.multiLock(client.lock("a"), client.lock("b"));
            assertEquals(Released.YES, both.acquire().release());
            server.call("LOCK.ACQUIRE", "a", "other", "PX", "60000");
            // The client gives the connection up after two seconds, and asks again on another one.
            proxy.delay("LOCK.MACQUIRE");
            assertTrue(both.acquireWithin(Duration.ofMillis(3_200)).isEmpty());
            assertTrue(proxy.hasDelayed());
            assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
            server.call("LOCK.RELEASE", "a", "other");
            proxy.letGo();
            Waiting.waitFor("the late request", () -> server.stat("finals_refused") >= 1);
            assertEquals(0L, server.call("EXISTS", "a", "b"));
        }
    }
}
