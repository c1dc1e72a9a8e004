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
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Who holds a lock, and a hold that goes on in another process. */
class ResumeTest extends TwoClients {
    private static TestServer server;

    ResumeTest() {
        super(server);
    }

    @BeforeAll
    static void start() {
        server = TestServer.with("--lock.string-holders", "yes");
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @Test
    void a_lock_says_who_holds_it_and_who_waits() throws Exception {
        FencedLock lock = client.lock("k", LockOptions.defaults().note("here"));
        assertEquals(new LockInfo(null, List.of(), 0, Duration.ZERO), lock.info());
        Guard guard = lock.acquire();
        CompletableFuture<Optional<Guard>> waiting = other.lock("k").acquireAsync(null);
        server.awaitTickets(1);
        LockInfo info = other.lock("k").info();
        assertEquals("exclusive", info.mode());
        assertEquals(1, info.waiters());
        assertFalse(info.longestWait().isNegative());
        LockInfo.Holder holder = info.holders().get(0);
        assertEquals(List.of(guard.owner(), "here", guard.token(), 1L),
                List.of(holder.owner(), holder.note(), holder.token(), holder.holds()));
        assertTrue(holder.remaining().toMillis() > 0 && holder.remaining().compareTo(Duration.ofSeconds(30)) <= 0);
        assertFalse(holder.held().isNegative());
        assertFalse(info.toString().contains(guard.owner()), info.toString());
        guard.release();
        waiting.get(60, TimeUnit.SECONDS).orElseThrow().release();
    }

    @Test
    void a_lock_says_who_else_holds_it() throws Exception {
        server.call("HSET", "redisson", "uuid:1", "2");
        LockInfo.Holder redisson = client.lock("redisson").info().holders().get(0);
        assertEquals(new LockInfo.Holder("uuid:1", null, null, 2, null, null), redisson);
        assertEquals(-1, client.lock("redisson").remainTimeToLive());
        server.call("SET", "text", "secret", "PX", "60000");
        assertEquals("string", client.lock("text").info().mode());
        assertTrue(client.lock("text").isLocked());
        FencedReadWriteLock both = client.readWriteLock("both");
        try (Guard one = both.readLock().acquire(); Guard two = both.readLock().acquire()) {
            LockInfo info = both.writeLock().info();
            assertEquals("read", info.mode());
            assertEquals(2, info.holders().size());
            assertEquals(one.token(), two.token());
        }
        server.call("RPUSH", "list", "x");
        assertThrows(WrongTypeException.class, client.lock("list")::info);
    }

    @Test
    void a_hold_goes_on_in_another_process() throws Exception {
        Guard first = client.lock("k").acquire();
        assertTrue(first.leave(Duration.ofMinutes(1)));
        assertEquals(1, client.statistics().releases());
        assertEquals(0, client.statistics().holds());
        LockOptions options = LockOptions.defaults().lease(Duration.ofSeconds(6));
        Guard second = other.lock("k", options).resume(first.owner(), first.token());
        assertEquals(first.token(), second.token());
        assertTrue(other.lock("k").info().holders().get(0).remaining().compareTo(options.lease()) <= 0);
        Waiting.waitFor("a renewal", () -> other.statistics().renewals() > 0);
        assertEquals(Optional.empty(), client.lock("k").tryAcquire());
        assertEquals(Released.YES, second.release());
        assertEquals(1, other.statistics().acquisitions());
        client.lock("k").tryAcquire().orElseThrow().release();
    }

    @Test
    void readers_writers_and_permits_are_resumed_too() throws Exception {
        FencedReadWriteLock both = client.readWriteLock("both");
        Guard reader = both.readLock().acquire();
        reader.leave(Duration.ofMinutes(1));
        assertEquals(Released.YES, both.readLock().resume(reader.owner(), reader.token()).release());
        Guard writer = both.writeLock().acquire();
        writer.leave(Duration.ofMinutes(1));
        assertEquals(Released.YES, both.writeLock().resume(writer.owner(), writer.token()).release());
        LockSemaphore permits = client.semaphore("permits").limit(1);
        Permit permit = permits.acquire();
        permit.leave(Duration.ofMinutes(1));
        assertEquals(Released.YES, permits.resume(permit.owner(), permit.token()).release());
        assertEquals(0, permits.info().orElseThrow().held());
        assertThrows(LockLostException.class, () -> permits.resume(permit.owner(), permit.token()));
    }

    @Test
    void several_locks_are_left_together() throws Exception {
        MultiGuard both = client.multiLock(client.lock("a"), client.lock("b")).acquire();
        assertTrue(both.leave(Duration.ofMinutes(1)));
        for (Guard each : both.members()) {
            assertEquals(Released.YES,
                    other.lock(each.key()).resume(each.owner(), each.token()).release());
        }
        MultiGuard lost = client.multiLock(client.lock("a"), client.lock("b")).acquire();
        server.call("DEL", "a");
        assertFalse(lost.leave(Duration.ofMinutes(1)));
        assertEquals(0, client.statistics().holds());
    }

    @Test
    void a_grant_that_is_over_is_not_resumed() throws Exception {
        Guard held = client.lock("k").acquire();
        for (Runnable wrong : List.<Runnable>of(() -> other.lock("k").resume(held.owner(), held.token() - 1),
                () -> other.lock("k").resume("nobody", held.token()), () -> other.lock("free").resume("nobody", 1))) {
            LockLostException lost = assertThrows(LockLostException.class, wrong::run);
            assertFalse(lost.getMessage().contains("nobody"), lost.getMessage());
        }
        server.call("SET", "list", "x");
        assertThrows(LockLostException.class, () -> other.lock("list").resume("nobody", 1));
        assertEquals(0, other.statistics().holds());
        assertEquals(Released.YES, held.release());
        for (String owner : List.of("", "#me", "x".repeat(257))) {
            assertThrows(IllegalArgumentException.class, () -> other.lock("k").resume(owner, 1));
        }
        assertThrows(IllegalArgumentException.class,
                () -> other.readWriteLock("k").readLock().resume("me:write", 1));
        assertThrows(IllegalArgumentException.class,
                () -> other.lock("k", LockOptions.defaults().session()).resume("me", 1));
    }

    @Test
    void without_an_answer_nothing_is_given_up() throws Exception {
        Guard held = client.lock("k").acquire();
        try (Proxy proxy = Proxy.before(server.port());
                LockClient cutOff =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(2)).build()) {
            cutOff.lock("warm").acquire().release();
            proxy.hang(true);
            assertThrows(LockConnectionException.class, () -> cutOff.lock("k").resume(held.owner(), held.token()));
            proxy.hang(false);
            assertEquals(List.of(), cutOff.settled(Waiting.PATIENCE));
        }
        assertNull(held.lostReason());
        assertEquals(Released.YES, held.release());
    }
}
