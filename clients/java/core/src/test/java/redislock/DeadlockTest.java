package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/**
 * A thread whose earlier request was cut off may hold its key at the server without knowing. Another owner that waits
 * for that key and holds the next one of the thread is then waited for and waits: no deadlock of the program.
 */
class DeadlockTest {
    /** Holds b in a thread of its own, then waits for a, and releases both. */
    private static CompletableFuture<Void> holdsOneAndWantsTheOther(TestServer server, LockClient client) {
        CompletableFuture<Void> held = new CompletableFuture<>();
        CompletableFuture<Void> done = CompletableFuture.runAsync(() -> {
            client.lock("b").lock();
            held.complete(null);
            client.lock("a").lock();
            client.lock("a").unlock();
            client.lock("b").unlock();
        });
        held.join();
        server.awaitTickets(1);
        return done;
    }

    @Test
    void a_thread_does_not_meet_the_hold_of_its_request_whose_reply_was_lost() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address());
                LockClient other = Clients.create(server.address())) {
            client.lock("warm").lock();
            client.lock("warm").unlock();
            proxy.swallowReplyTo("LOCK.ACQUIRE");
            proxy.refuse(true);
            assertThrows(LockConnectionException.class, client.lock("a")::tryLock);
            assertEquals(1L, server.call("EXISTS", "a"), "granted, but the reply was lost");
            CompletableFuture<Void> done = holdsOneAndWantsTheOther(server, other);
            // sleep: the pauses between the attempts to release it grow, so that the next one comes after lock()
            Thread.sleep(1_000);
            proxy.refuse(false);
            assertBothAreServed(server, client, done);
        }
    }

    @Test
    void a_thread_does_not_meet_the_hold_whose_release_was_not_answered() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(3)).build();
                LockClient other = Clients.create(server.address())) {
            client.lock("a").lock();
            CompletableFuture<Void> done = holdsOneAndWantsTheOther(server, other);
            proxy.refuse(true);
            proxy.drop();
            assertThrows(LockConnectionException.class, client.lock("a")::unlock);
            proxy.refuse(false);
            assertBothAreServed(server, client, done);
        }
    }

    @Test
    void a_thread_does_not_meet_the_hold_of_a_request_that_is_served_late() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client =
                        LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(4)).build();
                LockClient other = Clients.create(server.address())) {
            Guard first = makeRequestLate(proxy, client, other);
            // Half of the response timeout later the connection is given up; the request is repeated by another one.
            assertFalse(client.lock("a").tryLock(3_300, TimeUnit.MILLISECONDS));
            assertTrue(proxy.hasDelayed());
            assertEquals(List.of(), client.settled(Waiting.PATIENCE));
            assertEquals(Released.YES, first.release());
            proxy.letGo();
            Waiting.waitFor("the late request", () -> server.stat("finals_refused") >= 1);
            assertEquals(0L, server.call("EXISTS", "a"));
        }
    }

    /** The other owner holds a, for which the next request of the client comes late. */
    private static Guard makeRequestLate(Proxy proxy, LockClient client, LockClient other)
            throws InterruptedException {
        client.lock("warm").lock();
        client.lock("warm").unlock();
        Guard holder = other.lock("a").acquire();
        proxy.delay("LOCK.ACQUIRE");
        return holder;
    }

    /** The thread locks b, and the other owner ends. */
    private static void assertBothAreServed(
            TestServer server, LockClient client, CompletableFuture<Void> other) throws Exception {
        client.lock("b").lock();
        client.lock("b").unlock();
        other.get(10, TimeUnit.SECONDS);
        assertTrue(server.stat("deadlocks") <= 1, "the thread asks once more");
    }

    @Test
    void a_deadlock_of_the_program_is_refused_also_after_a_fault() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address());
                LockClient other = Clients.create(server.address())) {
            client.lock("a").lock();
            CompletableFuture<Void> done = holdsOneAndWantsTheOther(server, other);
            Guard busy = other.lock("busy").acquire();
            proxy.swallowReplyTo("LOCK.ACQUIRE");
            assertFalse(client.lock("busy").tryLock(1, TimeUnit.SECONDS));
            assertThrows(DeadlockException.class, client.lock("b")::lock);
            assertTrue(client.lock("a").isHeldByCurrentThread());
            client.lock("a").unlock();
            done.get(10, TimeUnit.SECONDS);
            busy.release();
        }
    }
}
