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
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The server for unit tests; what it does as the real one is asked of both. */
class MemoryServerTest {
    private static final LockOptions FIXED = LockOptions.defaults().lease(Duration.ofSeconds(20)).fixedLease();

    private final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable each : open) {
            each.close();
        }
    }

    private MemoryServer memory() {
        MemoryServer server = new MemoryServer();
        open.add(server);
        return server;
    }

    /** Makes clients of one server. */
    private Supplier<LockClient> clients(boolean isReal) {
        if (!isReal) {
            return memory()::client;
        }
        TestServer server = TestServer.start();
        open.add(server);
        return () -> {
            LockClient client = Clients.create(server.address());
            open.add(0, client);
            return client;
        };
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void locks(boolean isReal) throws Exception {
        Supplier<LockClient> clients = clients(isReal);
        LockClient one = clients.get();
        LockClient two = clients.get();
        FencedLock lock = one.lock("k", LockOptions.defaults().note("here"));
        assertNull(lock.info().mode());
        Guard first = lock.acquire();
        assertEquals(Optional.empty(), two.lock("k").tryAcquire());
        assertFalse(two.lock("k").tryLock(20, TimeUnit.MILLISECONDS));
        Waiting.waitFor("the withdrawal", () -> lock.info().waiters() == 0);
        List<CompletableFuture<Optional<Guard>>> waiting = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            waiting.add((i == 1 ? one : two).lock("k").acquireAsync(null));
            int count = i + 1;
            Waiting.waitFor("a wait", () -> lock.info().waiters() == count);
        }
        assertThrows(QueueFullException.class, two.lock("k", LockOptions.defaults().queue(3))::acquire);
        LockInfo info = two.lock("k").info();
        assertEquals("exclusive", info.mode());
        assertEquals(first.owner(), info.holders().get(0).owner());
        assertEquals("here", info.holders().get(0).note());
        long token = first.token();
        assertEquals(Released.YES, first.release());
        for (CompletableFuture<Optional<Guard>> each : waiting) {
            Guard granted = each.get(60, TimeUnit.SECONDS).orElseThrow();
            assertTrue(granted.token() > token);
            token = granted.token();
            granted.release();
        }
        CompletableFuture<Optional<Guard>> cancelled = two.lock("thread").acquireAsync(null);
        cancelled.get(60, TimeUnit.SECONDS).orElseThrow().leave(Duration.ofMinutes(1));
        FencedLock held = one.lock("re-entrant");
        held.lock();
        held.lock();
        assertTrue(two.lock("re-entrant").isLocked());
        held.unlock();
        held.unlock();
        assertFalse(two.lock("re-entrant").isLocked());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_key_of_another_kind_is_refused(boolean isReal) throws Exception {
        LockClient client = clients(isReal).get();
        client.lock("lock").acquire();
        client.readWriteLock("both").readLock().acquire();
        client.semaphore("permits").set(1);
        LockSemaphore onLock = client.semaphore("lock", LockOptions.defaults().limit(1));
        for (Executable each : List.<Executable>of(onLock::acquire, () -> onLock.set(1),
                client.lock("permits")::acquire, client.readWriteLock("permits").readLock()::acquire)) {
            assertEquals("WRONGTYPE", assertThrows(WrongTypeException.class, each).code());
        }
        for (Executable each : List.<Executable>of(client.lock("both")::acquire,
                client.readWriteLock("lock").writeLock()::acquire,
                client.multiLock(client.lock("free"), client.lock("both"))::acquire)) {
            assertEquals("LOCKTYPE", assertThrows(WrongTypeException.class, each).code());
        }
        assertFalse(client.lock("free").isLocked());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void readers_writers_permits_and_several_locks(boolean isReal) throws Exception {
        Supplier<LockClient> clients = clients(isReal);
        LockClient one = clients.get();
        LockClient two = clients.get();
        FencedReadWriteLock both = one.readWriteLock("both");
        both.writeLock().lock();
        both.readLock().lock();
        both.writeLock().unlock();
        Guard reader = two.readWriteLock("both").readLock().acquire();
        assertEquals(both.readLock().token(), reader.token());
        assertEquals(Optional.empty(), two.readWriteLock("both").writeLock().tryAcquire());
        assertEquals(2, both.readLock().info().holders().size());
        both.readLock().unlock();
        reader.release();
        LockSemaphore permits = one.semaphore("permits");
        assertThrows(NoSemaphoreException.class, permits::acquire);
        permits.set(3);
        Permit two2 = permits.count(2).acquire();
        assertEquals(1, permits.info().orElseThrow().free());
        CompletableFuture<Optional<Permit>> waiting = two.semaphore("permits").count(2).acquireAsync(null);
        Waiting.waitFor("a wait", () -> permits.info().orElseThrow().waiters() == 1);
        assertEquals(Optional.empty(), permits.tryAcquire(), "in order");
        two2.release();
        waiting.get(60, TimeUnit.SECONDS).orElseThrow().release();
        MultiLock several = one.multiLock(one.lock("a"), one.lock("b"));
        MultiGuard guard = several.acquire();
        assertNotEquals(guard.tokens().get(0), guard.tokens().get(1));
        assertEquals(Optional.empty(), two.lock("b").tryAcquire());
        CompletableFuture<Optional<Guard>> next = two.lock("b").acquireAsync(null);
        assertEquals(Released.YES, guard.release());
        next.get(60, TimeUnit.SECONDS).orElseThrow().release();
    }

    @Test
    void a_lease_ends_and_a_wait_goes_on_when_the_clock_is_moved() throws Exception {
        MemoryServer server = memory();
        LockClient one = server.client();
        LockClient two = server.client();
        Guard fixed = one.lock("k", FIXED).acquire();
        CompletableFuture<Optional<Guard>> waiting = two.lock("k").acquireAsync(Duration.ofSeconds(60));
        Waiting.waitFor("a wait", () -> one.lock("k").info().waiters() == 1);
        server.advance(Duration.ofSeconds(10));
        assertNull(fixed.lostReason());
        assertFalse(waiting.isDone());
        assertFalse(fixed.validFor().compareTo(Duration.ofSeconds(10)) > 0);
        server.advance(Duration.ofSeconds(10));
        assertEquals(LostReason.UNCONFIRMED, fixed.lostReason());
        Guard next = waiting.get(60, TimeUnit.SECONDS).orElseThrow();
        assertThrows(LockLostException.class, () -> fixed.execute("SET", "x", 1));
        assertTrue(two.lock("left").acquire().leave(Duration.ofSeconds(90)));
        server.advance(Duration.ofSeconds(89));
        assertTrue(one.lock("left").isLocked());
        server.advance(Duration.ofSeconds(1));
        assertFalse(one.lock("left").isLocked());
        server.advance(Duration.ofHours(1));
        assertNull(next.lostReason());
        assertTrue(two.statistics().renewals() >= 360, two.statistics().toString());
        CompletableFuture<Optional<Guard>> late = one.lock("k").acquireAsync(Duration.ofMinutes(5));
        Waiting.waitFor("a wait", () -> one.lock("k").info().waiters() == 1);
        server.advance(Duration.ofMinutes(6));
        assertEquals(Optional.empty(), late.get(60, TimeUnit.SECONDS));
        assertEquals(Released.YES, next.release());
    }

    @Test
    void what_it_does_not_know_is_refused() throws Exception {
        MemoryServer server = memory();
        LockClient client = server.client();
        Guard guard = client.lock("k").acquire();
        for (Executable each : List.<Executable>of(() -> guard.execute("SET", "x", 1, "EX", 10),
                () -> guard.execute("SET", "x", 1, "NX", "XX"), () -> guard.execute("APPEND", "x", 1))) {
            assertEquals("ERR", assertThrows(RefusedException.class, each).code());
        }
        assertThrows(NotLoadedException.class, () -> client.latch("l").set(1));
        assertNull(guard.execute("GET", "x"));
        FencedLock two = client.lock("two", LockOptions.defaults().replicas(2));
        assertEquals(0, assertThrows(NotReplicatedException.class, two::tryAcquire).had());
        server.replicas(2);
        assertEquals(Released.YES, two.tryAcquire().orElseThrow().release());
    }

    @Test
    void a_session_lasts_as_long_as_its_connection() throws Exception {
        MemoryServer server = memory();
        LockClient client = server.client();
        Guard guard = client.lock("k", LockOptions.defaults().session()).acquire();
        server.advance(Duration.ofHours(1));
        assertNull(guard.lostReason());
        assertEquals(Released.YES, guard.release());
        assertFalse(client.lock("k").isLocked());
    }

    @Test
    void a_loss_on_demand_is_known_at_once() throws Exception {
        MemoryServer server = memory();
        LockClient client = server.client();
        CompletableFuture<Lost> told = new CompletableFuture<>();
        Guard guard = client.lock("k", LockOptions.defaults().onLost(told::complete)).acquire();
        Guard other = client.lock("other").acquire();
        CompletableFuture<Optional<Guard>> next = server.client().lock("k").acquireAsync(null);
        Waiting.waitFor("a wait", () -> client.lock("k").info().waiters() == 1);
        server.lose("k");
        assertEquals(LostReason.TAKEN, guard.lostReason());
        assertNull(other.lostReason());
        assertEquals("k", told.get(60, TimeUnit.SECONDS).name());
        assertThrows(LockLostException.class, guard::close);
        next.get(60, TimeUnit.SECONDS).orElseThrow().release();
    }
}
