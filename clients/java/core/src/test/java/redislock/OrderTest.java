package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.Sentinels;
import redislock.testing.TestCluster;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Requests that are made while a client connects are granted in their order. */
class OrderTest {
    private static final int WAITS = 500;

    /** Makes the requests, then lets them reach the server; the lock is held until all of them wait. */
    private static void assertOrder(TestServer server, LockClient client, Runnable connect) throws Exception {
        try (LockClient holder = LockClient.create(server.address())) {
            Guard held = holder.lock("order").acquire();
            List<CompletableFuture<Long>> tokens = new ArrayList<>();
            for (int i = 0; i < WAITS; i++) {
                tokens.add(client.lock("order").acquireAsync(null).thenApply(OrderTest::tokenOf));
            }
            connect.run();
            server.awaitTickets(WAITS);
            held.release();
            long last = 0;
            int inversions = 0;
            for (CompletableFuture<Long> each : tokens) {
                long token = each.get(20, TimeUnit.SECONDS);
                inversions += token < last ? 1 : 0;
                last = token;
            }
            assertEquals(0, inversions);
        }
    }

    private static long tokenOf(Optional<Guard> granted) {
        try (Guard guard = granted.orElseThrow()) {
            return guard.token();
        }
    }

    @Test
    void at_the_first_connection() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = LockClient.create(proxy.address())) {
            proxy.hang(true);
            assertOrder(server, client, () -> proxy.hang(false));
        }
    }

    @Test
    void while_the_connection_is_opened() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = LockClient.create(server.address())) {
            assertOrder(server, client, () -> {});
        }
    }

    @Test
    void after_the_connection_was_lost() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = LockClient.create(proxy.address())) {
            client.lock("warm").acquire().release();
            int accepted = proxy.accepted();
            proxy.hang(true);
            proxy.drop();
            CompletableFuture<Optional<Guard>> first = client.lock("first").acquireAsync(Duration.ofSeconds(20));
            Waiting.waitFor("the next connection", () -> proxy.accepted() > accepted);
            assertOrder(server, client, () -> proxy.hang(false));
            first.get(20, TimeUnit.SECONDS).orElseThrow().release();
        }
    }

    @Test
    void while_a_sentinel_is_asked() throws Exception {
        try (Sentinels fleet = Sentinels.start(0, 1);
                LockClient client = LockClient.builder(RedisURI.Builder
                        .sentinel("127.0.0.1", fleet.ports().get(0), Sentinels.NAME).build()).build()) {
            assertOrder(fleet.servers().get(0), client, () -> {});
        }
    }

    /** They share a name in this process, so the queue of the server does not order them. */
    @Test
    void acquisitions_of_one_owner_take_turns() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = LockClient.create(server.address())) {
            LockOptions named = LockOptions.defaults().owner("me");
            FencedLock lock = client.lock("k", named);
            FencedLock session = client.lock("k", named.session());
            Guard first = lock.acquire();
            List<CompletableFuture<Optional<Guard>>> others =
                    List.of(lock.acquireAsync(null), session.acquireAsync(null), lock.acquireAsync(null));
            List<CompletableFuture<Long>> tokens = others.stream().map(each -> each.thenCompose(granted -> {
                Guard guard = granted.orElseThrow();
                return guard.releaseAsync().thenApply(released -> guard.token());
            })).toList();
            long token = first.token();
            first.release();
            // It asks again at once, behind the others.
            Guard last = lock.acquire();
            for (CompletableFuture<Long> each : tokens) {
                long next = each.get(5, TimeUnit.SECONDS);
                assertTrue(token < next, token + " before " + next);
                token = next;
            }
            assertTrue(token < last.token(), token + " before " + last.token());
            last.release();
        }
    }

    /** The first requests are redirected, and the acquisition is cancelled somewhere on their way. */
    @Test
    void a_release_does_not_overtake_its_acquire_at_the_first_redirection() throws Exception {
        try (TestCluster cluster = TestCluster.start(2); Proxy proxy = Proxy.before(cluster.node(0).port())) {
            TestServer owner = cluster.node(1);
            String key = cluster.keyOf(owner, "cold");
            proxy.holdReplyTo("LOCK.ACQUIRE");
            try (LockClient client = LockClient.create("redis+cluster://127.0.0.1:" + proxy.port())) {
                CompletableFuture<Optional<Guard>> wait = client.lock(key).acquireAsync(null);
                Waiting.waitFor("the first request", proxy::hasDelayed);
                wait.cancel(true);
                proxy.letGo();
                assertEquals(List.of(), client.settled(Waiting.PATIENCE));
                assertNull(owner.call("LOCK.INFO", key));
            }
            Random random = new Random(3);
            for (int i = 0; i < 40; i++) {
                LockOptions options = i % 2 == 0 ? LockOptions.defaults() : LockOptions.defaults().owner("me");
                // The last release of the undoing, which hides a mistake, comes after the response timeout.
                try (LockClient client = LockClient.builder("redis+cluster://127.0.0.1:" + cluster.node(0).port())
                        .responseTimeout(Duration.ofMinutes(1)).build()) {
                    CompletableFuture<Optional<Guard>> wait = client.lock(key, options).acquireAsync(null);
                    LockSupport.parkNanos(random.nextInt(i < 20 ? 60_000_000 : 20_000_000));
                    if (!wait.cancel(true)) {
                        wait.get().orElseThrow().close();
                    }
                    assertEquals(List.of(), client.settled(Waiting.PATIENCE));
                    assertNull(owner.call("LOCK.INFO", key), "held, in round " + i);
                }
            }
        }
    }
}
