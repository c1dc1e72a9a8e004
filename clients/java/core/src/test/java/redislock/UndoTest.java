package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/**
 * Acquisitions that are cancelled when their grant has arrived in the process, and nothing has handled it yet: the
 * thread of the client is held meanwhile.
 */
class UndoTest {
    private static final LockOptions LONG = LockOptions.defaults().lease(Duration.ofSeconds(60));

    /** A server, a client whose thread can be held, and a proxy between them. */
    private static final class Scene implements AutoCloseable {
        final TestServer server = TestServer.start();
        final Proxy proxy = Proxy.before(server.port());
        final LockClient client;
        /** Null: the thread is not to be held. */
        private volatile CountDownLatch end;

        Scene(UnaryOperator<LockClient.Builder> changed) {
            client = changed.apply(LockClient.builder(proxy.address())).build();
        }

        /** Holds the thread of the client. */
        void hold() {
            end = new CountDownLatch(1);
            CountDownLatch until = end;
            CountDownLatch held = new CountDownLatch(1);
            client.network.loop().execute(() -> {
                held.countDown();
                Waiting.waitFor("the end", () -> until.getCount() == 0);
            });
            Waiting.waitFor("the thread of the client", () -> held.getCount() == 0);
        }

        void letGo() {
            CountDownLatch present = end;
            end = null;
            if (present != null) {
                present.countDown();
            }
        }

        /** Begins a wait whose request with this word is delayed. */
        CompletableFuture<Optional<Guard>> delayed(String word, FencedLock lock) {
            proxy.delay(word);
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            Waiting.waitFor("the request", proxy::hasDelayed);
            return wait;
        }

        boolean isHeld(String key) {
            return server.call("LOCK.INFO", key) != null;
        }

        @Override
        public void close() {
            try (server; proxy; client) {
                letGo();
            }
        }
    }

    /** The acquisition of {@code start} is cancelled before or after the arrival of its grant, and then undone. */
    private static void assertUndone(
            Scene scene, boolean isBefore, Supplier<CompletableFuture<Optional<Guard>>> start) {
        CompletableFuture<Optional<Guard>> wait = start.get();
        scene.hold();
        if (isBefore) {
            assertTrue(wait.cancel(true));
        }
        scene.server.call("LOCK.RELEASE", "k", "other");
        scene.proxy.letGo();
        Waiting.waitFor("the grant", () -> scene.isHeld("k"));
        // The grant has most likely arrived before the replies to later requests.
        for (int i = 0; i < 3; i++) {
            scene.client.lock("free").tryAcquire().orElseThrow().close();
        }
        if (!isBefore) {
            assertTrue(wait.cancel(true));
        }
    }

    private static void assertFree(Scene scene, LockOptions options, boolean isBefore) throws Exception {
        scene.letGo();
        String what = options.owner().isPresent() + ", " + isBefore;
        Waiting.waitFor("a free lock: " + what, Duration.ofSeconds(5), () -> !scene.isHeld("k"));
        assertEquals(List.of(), scene.client.settled(Waiting.PATIENCE));
        scene.server.awaitTickets(0);
    }

    /** Begins a wait for a lock that another owner holds. */
    private interface Begin {
        CompletableFuture<Optional<Guard>> begin(FencedLock lock);
    }

    private static void assertWaitsAreUndone(Scene scene, Begin begin) throws Exception {
        for (LockOptions options : List.of(LONG, LONG.owner("me"))) {
            for (boolean isBefore : new boolean[] {true, false}) {
                scene.server.call("LOCK.ACQUIRE", "k", "other", "PX", "600000");
                assertUndone(scene, isBefore, () -> begin.begin(scene.client.lock("k", options)));
                assertFree(scene, options, isBefore);
            }
        }
    }

    @Test
    void the_message_about_a_ticket() throws Exception {
        try (Scene scene = new Scene(builder -> builder)) {
            assertWaitsAreUndone(scene, lock -> {
                CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
                scene.server.awaitTickets(1);
                return wait;
            });
        }
    }

    @Test
    void the_reply_to_a_ticket() throws Exception {
        try (Scene scene = new Scene(builder -> builder)) {
            // The subscription, without which no ticket is granted.
            scene.server.call("LOCK.ACQUIRE", "warm", "other", "PX", "600000");
            CompletableFuture<Optional<Guard>> warm = scene.client.lock("warm").acquireAsync(null);
            scene.server.awaitTickets(1);
            assertTrue(warm.cancel(true));
            assertWaitsAreUndone(scene, lock -> scene.delayed("NOTIFY", lock));
        }
    }

    @Test
    void the_reply_to_the_request_after_a_message() throws Exception {
        try (Scene scene = new Scene(builder -> builder)) {
            assertWaitsAreUndone(scene, lock -> {
                CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
                scene.server.awaitTickets(1);
                scene.proxy.delay("LOCK.ACQUIRE");
                scene.server.call("LOCK.RELEASE", "k", "other");
                Waiting.waitFor("the request", scene.proxy::hasDelayed);
                return wait;
            });
        }
    }

    /** The server does not notice the end of the connection to which the hold is bound. */
    @Test
    void the_reply_to_a_request_with_a_session() throws Exception {
        Duration timeout = Duration.ofMillis(400);
        LockOptions session = LockOptions.defaults().session();
        for (LockOptions options : List.of(session, session.owner("me"))) {
            for (boolean isBefore : new boolean[] {true, false}) {
                try (Scene scene = new Scene(builder -> builder.responseTimeout(timeout))) {
                    assertUndone(scene, isBefore, () -> scene.delayed("SESSION", scene.client.lock("k", options)));
                    scene.proxy.cut();
                    assertFree(scene, options, isBefore);
                }
            }
        }
    }

    @Test
    void a_grant_that_is_cancelled_before_its_future_is_completed_is_settled() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        try (TestServer server = TestServer.start();
                LockClient client = LockClient.builder(server.address()).executor(task -> new Thread(() -> {
                    Waiting.waitFor("the end", () -> end.getCount() == 0);
                    task.run();
                }).start()).build()) {
            CompletableFuture<Optional<Guard>> grant = client.lock("k").acquireAsync(null);
            Waiting.waitFor("the grant", () -> client.statistics().holds() == 1);
            assertTrue(grant.cancel(true));
            assertEquals(List.of(), client.settled(Waiting.PATIENCE));
            assertEquals(0L, server.call("EXISTS", "k"));
            end.countDown();
        }
    }
}
