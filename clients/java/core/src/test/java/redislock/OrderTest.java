package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

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
        try (LockClient holder = Clients.create(server.address())) {
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
                long token = each.get(60, TimeUnit.SECONDS);
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
                LockClient client = Clients.create(proxy.address())) {
            proxy.hang(true);
            assertOrder(server, client, () -> proxy.hang(false));
        }
    }

    @Test
    void while_the_connection_is_opened() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            assertOrder(server, client, () -> {});
        }
    }

    @Test
    void after_the_connection_was_lost() throws Exception {
        try (TestServer server = TestServer.start();
                Proxy proxy = Proxy.before(server.port());
                LockClient client = Clients.create(proxy.address())) {
            client.lock("warm").acquire().release();
            int accepted = proxy.accepted();
            proxy.hang(true);
            proxy.drop();
            CompletableFuture<Optional<Guard>> first = client.lock("first").acquireAsync(Duration.ofSeconds(20));
            Waiting.waitFor("the next connection", () -> proxy.accepted() > accepted);
            assertOrder(server, client, () -> proxy.hang(false));
            first.get(60, TimeUnit.SECONDS).orElseThrow().release();
        }
    }

    @Test
    void while_a_sentinel_is_asked() throws Exception {
        try (Sentinels fleet = Sentinels.start(0, 1);
                LockClient client = Clients.create(
                        "redis+sentinel://127.0.0.1:" + fleet.ports().get(0) + "/" + Sentinels.NAME)) {
            assertOrder(fleet.servers().get(0), client, () -> {});
        }
    }

    @Test
    void an_acquisition_that_is_cancelled_while_the_cluster_is_looked_up_leaves_no_lock() throws Exception {
        try (TestCluster cluster = TestCluster.start(2)) {
            TestServer owner = cluster.node(1);
            String key = cluster.keyOf(owner, "cold");
            Random random = new Random(3);
            for (int i = 0; i < 40; i++) {
                LockOptions options = i % 2 == 0 ? LockOptions.defaults() : LockOptions.defaults().owner("me");
                try (LockClient client = Clients.create("redis+cluster://127.0.0.1:" + cluster.node(0).port())) {
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
