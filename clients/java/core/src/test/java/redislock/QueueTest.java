package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Bounds of queues, and permits that are taken together. */
class QueueTest {
    private static final LockOptions NONE = LockOptions.defaults().queue(0);
    private static final LockOptions ONE = LockOptions.defaults().queue(1);

    private final TestServer server = TestServer.start();
    private final LockClient client = Clients.create(server.address());
    private final LockClient other = Clients.create(server.address());

    @AfterEach
    void close() throws InterruptedException {
        try (server; client; other) {
            assertEquals(List.of(), client.settled(Waiting.PATIENCE));
        }
    }

    private static void assertFull(CompletableFuture<?> wait) {
        Throwable failure = assertThrows(ExecutionException.class, () -> wait.get(60, TimeUnit.SECONDS)).getCause();
        assertEquals("QUEUEFULL", assertInstanceOf(QueueFullException.class, failure).code());
    }

    @Test
    void a_wait_beyond_the_bound_is_refused_and_leaves_nothing() throws Exception {
        Guard held = client.lock("k", NONE).acquire();
        assertThrows(QueueFullException.class, other.lock("k", NONE)::acquire);
        assertThrows(QueueFullException.class, () -> other.lock("k", NONE).tryLock(1, TimeUnit.SECONDS));
        assertFalse(other.lock("k", NONE).tryLock(), "it does not wait");
        CompletableFuture<Optional<Guard>> first = other.lock("k", ONE).acquireAsync(null);
        server.awaitTickets(1);
        assertFull(other.lock("k", ONE).acquireAsync(Duration.ofSeconds(30)));
        assertFull(other.multiLock(other.lock("k", ONE), other.lock("free", ONE)));
        assertEquals(1, client.lock("k").info().waiters());
        assertEquals(List.of(), other.settled(Waiting.PATIENCE));
        assertEquals(0, server.stat("finals"));
        held.release();
        first.get(60, TimeUnit.SECONDS).orElseThrow().release();
        other.lock("k", NONE).acquire().release();
        assertEquals(0, client.lock("k").info().waiters());
    }

    private static void assertFull(MultiLock several) {
        assertThrows(QueueFullException.class, several::acquire);
    }

    @Test
    void latches_have_queues_too() throws Exception {
        Latch latch = client.latch("latch");
        latch.set(1);
        CompletableFuture<Boolean> first = latch.queue(1).awaitAsync(null);
        server.awaitTickets(1);
        assertFull(latch.queue(1).awaitAsync(null));
        assertFalse(latch.queue(0).tryAwait());
        latch.countDown();
        assertEquals(true, first.get(60, TimeUnit.SECONDS));
        latch.queue(0).await();
    }

    @Test
    void semaphores_and_readers_have_queues_too() throws Exception {
        LockSemaphore permits = client.semaphore("permits", NONE.limit(1));
        Permit permit = permits.acquire();
        assertThrows(QueueFullException.class, permits::acquire);
        permit.release();
        permits.acquire().release();
        FencedReadWriteLock both = client.readWriteLock("both", NONE);
        Guard writer = both.writeLock().acquire();
        assertThrows(QueueFullException.class, both.readLock()::acquire);
        writer.release();
    }

    @Test
    void a_wait_at_its_place_goes_on_when_its_connection_breaks() throws Exception {
        Guard held = client.lock("k").acquire();
        CompletableFuture<Optional<Guard>> first = other.lock("k", ONE).acquireAsync(null);
        server.awaitTickets(1);
        CompletableFuture<Optional<Guard>> second = client.lock("k").acquireAsync(null);
        server.awaitTickets(2);
        assertEquals(2, server.killClients(each -> each.get("sub").equals("1")));
        // A lock that is free meanwhile goes to the first that is there again.
        Waiting.waitFor("the subscriptions",
                () -> server.clients().stream().filter(each -> each.get("sub").equals("1")).count() == 2);
        held.release();
        first.get(60, TimeUnit.SECONDS).orElseThrow().release();
        second.get(60, TimeUnit.SECONDS).orElseThrow().release();
    }

    @Test
    void several_permits_are_taken_together() throws Exception {
        LockSemaphore permits = client.semaphore("permits", LockOptions.defaults().limit(5));
        Permit three = permits.count(3).acquire();
        assertEquals(3, three.count());
        assertEquals(2, permits.info().orElseThrow().free());
        assertEquals(Optional.empty(), permits.count(3).tryAcquire());
        CompletableFuture<Optional<Permit>> waiting = other.semaphore("permits").count(4).acquireAsync(null);
        server.awaitTickets(1);
        three.renew(Duration.ofSeconds(20));
        assertEquals(Released.YES, three.release());
        Permit four = waiting.get(60, TimeUnit.SECONDS).orElseThrow();
        assertEquals(4, four.count());
        four.leave(Duration.ofMinutes(1));
        Permit resumed = permits.count(4).resume(four.owner(), four.token());
        assertEquals(1, permits.info().orElseThrow().free());
        assertEquals(Released.YES, resumed.release());
        assertEquals(5, permits.info().orElseThrow().free());
        Permit one = permits.acquire();
        assertEquals(1, one.count());
        one.release();
    }

    @Test
    void more_permits_than_there_are_wait_for_more() throws Exception {
        LockSemaphore permits = client.semaphore("permits");
        permits.set(2);
        assertEquals(Optional.empty(), permits.count(3).tryAcquire());
        CompletableFuture<Optional<Permit>> waiting = permits.count(3).acquireAsync(null);
        server.awaitTickets(1);
        permits.set(3);
        assertEquals(Released.YES, waiting.get(60, TimeUnit.SECONDS).orElseThrow().release());
        waiting = permits.count(4).acquireAsync(null);
        server.awaitTickets(1);
        waiting.cancel(true);
        assertEquals(List.of(), client.settled(Waiting.PATIENCE));
        assertEquals(3, permits.info().orElseThrow().free());
    }

    @Test
    void wrong_options_are_refused() {
        LockOptions options = LockOptions.defaults();
        for (Runnable wrong : List.<Runnable>of(() -> options.queue(-1), () -> options.queue(1_000_001),
                () -> options.count(0), () -> options.count(65), () -> client.lock("k", options.count(2)),
                () -> client.semaphore("s", options.limit(2)).count(3))) {
            assertThrows(IllegalArgumentException.class, wrong::run);
        }
    }
}
