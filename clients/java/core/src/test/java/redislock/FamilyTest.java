package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.internal.lock.Blocking;
import redislock.testing.Conn;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Read-write locks, semaphores, latches and several locks together. */
class FamilyTest {
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
        assertEquals(0, server.stat("tickets"));
    }

    @Test
    void readers_share_and_a_writer_excludes() throws Exception {
        FencedReadWriteLock lock = client.readWriteLock("rw");
        lock.readLock().lock();
        LockFaceTest.inThread(() -> {
            assertTrue(lock.readLock().tryLock());
            assertFalse(lock.writeLock().tryLock());
            lock.readLock().unlock();
        });
        assertTrue(lock.readLock().isLocked());
        assertFalse(lock.writeLock().isLocked());
        lock.readLock().unlock();
        lock.writeLock().lock();
        LockFaceTest.inThread(() -> {
            assertFalse(lock.readLock().tryLock());
            assertTrue(lock.readLock().tryAcquire().isEmpty());
        });
        assertEquals(Mode.WRITE, lock.writeLock().mode());
        lock.writeLock().unlock();
    }

    @Test
    void a_writer_downgrades() throws Exception {
        FencedReadWriteLock lock = client.readWriteLock("down");
        lock.writeLock().lock();
        lock.readLock().lock();
        lock.writeLock().unlock();
        assertTrue(lock.readLock().isHeldByCurrentThread());
        LockFaceTest.inThread(() -> {
            assertTrue(lock.readLock().tryLock());
            lock.readLock().unlock();
            assertFalse(lock.writeLock().tryLock());
        });
        lock.readLock().unlock();
    }

    @Test
    void the_second_of_two_readers_that_upgrade_is_refused() throws Exception {
        FencedReadWriteLock lock = client.readWriteLock("up");
        lock.readLock().lock();
        Thread other = new Thread(() -> {
            lock.readLock().lock();
            lock.writeLock().lock();
            lock.writeLock().unlock();
            lock.readLock().unlock();
        });
        other.start();
        server.awaitTickets(1);
        DeadlockException refused = assertThrows(DeadlockException.class, () -> lock.writeLock().lock());
        assertFalse(refused.getMessage().contains(lock.readLock().guard().owner()));
        lock.readLock().unlock();
        other.join(5_000);
        assertFalse(other.isAlive());
    }

    @Test
    void a_semaphore_that_nobody_has_created_is_an_error() throws Exception {
        LockSemaphore jobs = client.semaphore("none");
        List<Executable> attempts = List.of(jobs::tryAcquire, () -> jobs.acquireWithin(Duration.ofSeconds(30)),
                jobs::acquire, () -> Blocking.get(jobs.acquireAsync(null)));
        for (Executable attempt : attempts) {
            Exception missing = assertThrows(NoSemaphoreException.class, attempt);
            assertTrue(missing.getMessage().contains("there is no semaphore none: create it"), missing::toString);
        }
        assertEquals(0, client.statistics().waiting());
        assertEquals(0, server.stat("tickets"));
        // One without permits, and one that is deleted meanwhile, are waited for.
        jobs.set(0);
        assertTrue(jobs.tryAcquire().isEmpty());
        CompletableFuture<Optional<Permit>> wait = jobs.acquireAsync(null);
        server.awaitTickets(1);
        server.call("DEL", "none");
        jobs.set(1);
        wait.get(20, TimeUnit.SECONDS).orElseThrow().release();
        server.call("DEL", "none");
        server.line("ACL SETUSER blind on >x ~* &* +@all -exists");
        try (LockClient blind = Clients.create(server.address("blind", "x"))) {
            assertTrue(blind.semaphore("none").acquireWithin(Duration.ofMillis(100)).isEmpty());
        }
    }

    @Test
    void a_semaphore_limits_its_holders() throws Exception {
        LockSemaphore jobs = client.semaphore("jobs");
        assertTrue(jobs.info().isEmpty());
        LockSemaphore limited = jobs.limit(2);
        Permit one = limited.tryAcquire().orElseThrow();
        Permit two = limited.acquire();
        assertNotEquals(one.owner(), two.owner());
        assertTrue(limited.acquireWithin(Duration.ofMillis(100)).isEmpty());
        CompletableFuture<Optional<Permit>> three = limited.acquireAsync(null);
        server.awaitTickets(1);
        SemaphoreInfo info = jobs.info().orElseThrow();
        assertEquals(List.of(2L, 0L, 2L, 1L), List.of(info.permits(), info.free(), info.held(), info.waiters()));
        assertEquals(Released.YES, one.release());
        three.get(5, TimeUnit.SECONDS).orElseThrow().release();
        assertTrue(two.renew(Duration.ofSeconds(60)));
        two.close();
        jobs.set(0);
        assertTrue(jobs.tryAcquire().isEmpty());
        jobs.set(1);
        LockSemaphore renewed = client.semaphore("jobs", LockOptions.defaults().lease(Duration.ofMillis(1_500)));
        Permit kept = renewed.acquire();
        Waiting.waitFor("a renewal", () -> client.statistics().renewals() >= 2);
        server.call("DEL", "{jobs}:timeout");
        assertEquals(LostReason.TAKEN, kept.lost().get(5, TimeUnit.SECONDS).reason());
        assertThrows(LockLostException.class, kept::close);
    }

    @Test
    void a_guard_of_a_reader_becomes_a_writer_under_the_same_owner() throws Exception {
        FencedReadWriteLock named = client.readWriteLock("named", LockOptions.defaults().owner("me"));
        try (Guard reader = named.readLock().acquire(); Guard writer = named.writeLock().tryAcquire().orElseThrow()) {
            assertEquals(reader.owner(), writer.owner());
        }
        FencedReadWriteLock fresh = client.readWriteLock("fresh");
        try (Guard reader = fresh.readLock().acquire()) {
            assertTrue(fresh.writeLock().acquireWithin(Duration.ofMillis(100)).isEmpty(), "waits for " + reader);
        }
    }

    @Test
    void a_latch_opens_for_all() throws Exception {
        Latch latch = client.latch("latch");
        assertTrue(latch.tryAwait(), "open before it is set");
        latch.set(3);
        assertFalse(latch.tryAwait());
        assertEquals(3, latch.count());
        assertFalse(latch.awaitWithin(Duration.ofMillis(100)));
        List<CompletableFuture<Boolean>> waits =
                List.of(latch.awaitAsync(null), latch.awaitAsync(Duration.ofSeconds(20)));
        server.awaitTickets(2);
        assertEquals(2, latch.countDown());
        assertEquals(0, latch.countDown(2));
        for (CompletableFuture<Boolean> wait : waits) {
            assertTrue(wait.get(5, TimeUnit.SECONDS));
        }
        latch.await();
        assertEquals(0, latch.count());
        latch.set(1);
        CompletableFuture<Boolean> cancelled = latch.awaitAsync(null);
        server.awaitTickets(1);
        cancelled.cancel(true);
        server.awaitTickets(0);
        latch.set(0);
    }

    @Test
    void a_latch_is_counted_down_at_most_once() throws Exception {
        try (Proxy proxy = Proxy.before(server.port()); LockClient through = Clients.create(proxy.address())) {
            Latch latch = through.latch("once");
            latch.set(5);
            proxy.swallowReplyTo("LATCH.DOWN");
            UnheardException unheard = assertThrows(UnheardException.class, latch::countDown);
            assertTrue(unheard.getMessage().contains("may have been served"));
            assertEquals("4", server.call("GET", "once"), "not repeated");
            proxy.drop();
            assertEquals(3, latch.countDown(), "a connection that broke before is no reason");
            server.call("DEL", "once");
        }
    }

    @Test
    void several_locks_of_a_server_are_one_request() throws Exception {
        FencedLock a = client.lock("a");
        FencedLock b = client.lock("b");
        MultiLock both = client.multiLock(b, a);
        long before = server.stat("tickets_queued");
        both.lock();
        assertTrue(a.isHeldByCurrentThread() && b.isHeldByCurrentThread());
        assertTrue(both.tryLock(), "re-entered");
        LockFaceTest.inThread(() -> {
            assertFalse(both.tryLock());
            assertFalse(both.tryLock(1, TimeUnit.SECONDS));
            assertTrue(both.tryAcquire().isEmpty());
        });
        both.unlock();
        a.lock();
        both.unlock();
        assertTrue(a.isHeldByCurrentThread());
        assertFalse(b.isHeldByCurrentThread());
        LockFaceTest.inThread(() -> assertFalse(both.tryLock()));
        assertThrows(IllegalMonitorStateException.class, both::unlock);
        assertFalse(a.isLocked(), "the holds of the others end");
        assertThrows(IllegalMonitorStateException.class, both::unlock);
        MultiGuard guard = both.acquire();
        assertEquals(List.of("b", "a"), guard.members().stream().map(member -> new String(member.key())).toList());
        assertEquals(2, guard.tokens().size());
        assertTrue(server.stat("tickets_queued") > before);
        assertEquals(Released.YES, guard.release());
        assertTrue(String.valueOf(server.info("commandstats")).contains("cmdstat_lock.macquire"));
    }

    @Test
    void locks_of_several_servers_are_all_or_none() throws Exception {
        try (TestServer second = TestServer.start(); LockClient other = Clients.create(second.address())) {
            MultiLock both = client.multiLock(client.lock("a"), other.lock("b"));
            MultiGuard guard = both.acquireWithin(Duration.ofSeconds(5)).orElseThrow();
            assertTrue(both.acquireWithin(Duration.ofMillis(200)).isEmpty());
            assertTrue(client.lock("a").tryAcquire().isEmpty());
            assertEquals(Released.YES, guard.release());
            Guard blocking = other.lock("b").acquire();
            assertTrue(both.tryAcquire().isEmpty());
            client.lock("a").tryAcquire().orElseThrow().release();
            CompletableFuture<MultiGuard> waiting = CompletableFuture.supplyAsync(() -> {
                try {
                    return both.acquire();
                } catch (InterruptedException impossible) {
                    throw new IllegalStateException(impossible);
                }
            });
            Waiting.waitFor("the wait", () -> client.statistics().waiting() + other.statistics().waiting() == 1);
            blocking.release();
            MultiGuard granted = waiting.get(10, TimeUnit.SECONDS);
            server.call("LOCK.BREAK", "a");
            granted.close();
            assertEquals(List.of(), client.settled(Waiting.PATIENCE));
        }
    }

    @Test
    void a_wait_for_several_locks_holds_none_when_its_grant_is_broken() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            for (LockOptions options : List.of(LockOptions.defaults(), LockOptions.defaults().owner("me"))) {
                for (String end : List.of("LOCK.BREAK", "DEL")) {
                    assertHoldsNone(server, proxy, client, options, end);
                }
            }
        }
    }

    /** The first of two keys is lost between the message about the grant and the request that confirms it. */
    private static void assertHoldsNone(TestServer server, Proxy proxy, LockClient client, LockOptions options,
            String end) throws Exception {
        MultiLock both = client.multiLock(client.lock("a", options), client.lock("b", options));
        server.call("LOCK.ACQUIRE", "a", "other", "PX", "60000");
        CompletableFuture<MultiGuard> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return both.acquire();
            } catch (InterruptedException impossible) {
                throw new IllegalStateException(impossible);
            }
        });
        server.awaitTickets(1);
        proxy.delay("LOCK.MACQUIRE");
        server.call("LOCK.RELEASE", "a", "other");
        Waiting.waitFor("the request after the message", proxy::hasDelayed);
        assertFalse(holders(server, "b").isEmpty());
        server.call(end, "a");
        server.call("LOCK.ACQUIRE", "a", "third", "PX", "60000");
        proxy.letGo();
        Waiting.waitFor("the release of the other key", () -> holders(server, "b").isEmpty());
        server.awaitTickets(1);
        server.call("LOCK.RELEASE", "a", "third");
        assertEquals(Released.YES, waiting.get(5, TimeUnit.SECONDS).release());
        assertEquals(0L, server.call("EXISTS", "a", "b"));
    }

    private static List<?> holders(TestServer server, String key) {
        Object info = server.call("LOCK.INFO", key);
        return info == null ? List.of() : (List<?>) Conn.map(info).get("holders");
    }
}
