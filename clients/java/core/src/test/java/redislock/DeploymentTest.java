package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.Certificates;
import redislock.testing.Conn;
import redislock.testing.Sentinels;
import redislock.testing.TestCluster;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Clusters with slots that move, promotions, sentinels, TLS. */
@Timeout(180)
class DeploymentTest {
    /** The response timeout of the clients that meet a node which does not answer. */
    private static final Duration PATIENCE = Duration.ofSeconds(8);

    /** Waits in the queue of this lock, whose grants are noted in order. */
    private static List<CompletableFuture<?>> line(
            TestServer node, FencedLock lock, int count, ConcurrentLinkedQueue<Integer> order) {
        List<CompletableFuture<?>> waits = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            waits.add(lock.acquireAsync(null).thenCompose(granted -> {
                order.add(number);
                return granted.orElseThrow().releaseAsync();
            }));
            int queued = i + 1;
            Waiting.waitFor(queued + " tickets", () -> node.stat("tickets") == queued);
        }
        return waits;
    }

    private static void awaitInOrder(List<CompletableFuture<?>> waits, ConcurrentLinkedQueue<Integer> order)
            throws Exception {
        CompletableFuture.allOf(waits.toArray(CompletableFuture<?>[]::new)).get(60, TimeUnit.SECONDS);
        assertEquals(IntStream.range(0, waits.size()).boxed().toList(), List.copyOf(order));
    }

    @Test
    void waits_follow_a_slot_that_moves() throws Exception {
        try (TestCluster cluster = TestCluster.start(3); LockClient client = Clients.create(cluster.address())) {
            TestServer source = cluster.node(0);
            TestServer target = cluster.node(1);
            String key = cluster.keyOf(source, "moved");
            FencedLock lock = client.lock(key);
            Guard first = lock.acquire();
            ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
            List<CompletableFuture<?>> waits = line(source, lock, 20, order);
            cluster.move(cluster.slotOf(key), source, target);
            Waiting.waitFor("the tickets at the new node", () -> target.stat("tickets") == 20);
            assertNull(first.lostReason());
            assertEquals(Released.YES, first.release());
            awaitInOrder(waits, order);
            for (TestServer node : cluster.nodes()) {
                long open = node.clients().stream().filter(each -> !isOfCluster(each)).count();
                assertTrue(open <= 4, () -> "those of Lettuce's cluster client: " + node.clients());
            }
        }
    }

    private static boolean isOfCluster(Map<String, String> client) {
        // The source keeps the connection of MIGRATE for a while.
        return client.get("flags").matches(".*[MS].*") || client.get("cmd").startsWith("restore");
    }

    @Test
    void several_locks_are_kept_while_some_of_them_have_moved() throws Exception {
        Duration lease = Duration.ofSeconds(9);
        try (TestCluster cluster = TestCluster.start(2); LockClient client = Clients.create(cluster.address())) {
            TestServer source = cluster.node(0);
            TestServer target = cluster.node(1);
            String tag = "{" + cluster.keyOf(source, "half") + "}";
            int slot = cluster.slotOf(tag);
            LockOptions options = LockOptions.defaults().lease(lease);
            MultiLock both = client.multiLock(client.lock(tag + "1", options), client.lock(tag + "2", options));
            MultiGuard guard = both.acquire();
            cluster.beginMove(slot, source, target);
            try (Conn conn = source.conn()) {
                conn.expect("MIGRATE", "127.0.0.1", target.port(), tag + "1", 0, 10_000);
            }
            long renewals = client.statistics().renewals();
            Waiting.waitFor("renewals of both", () -> client.statistics().renewals() >= renewals + 4);
            assertFalse(guard.lost().isDone());
            assertEquals(Released.YES, guard.release());
            assertEquals(0, client.statistics().losses());
        }
    }

    @Test
    void requests_follow_a_slot_while_it_is_moved() throws Exception {
        try (TestCluster cluster = TestCluster.start(2); LockClient client = Clients.create(cluster.address())) {
            TestServer source = cluster.node(0);
            TestServer target = cluster.node(1);
            String key = cluster.keyOf(source, "ask");
            int slot = cluster.slotOf(key);
            FencedLock lock = client.lock(key);
            lock.lock();
            cluster.beginMove(slot, source, target);
            cluster.migrateKeys(slot, source, target);
            assertTrue(lock.renew(Duration.ofSeconds(20)), "at the new node, by ASK");
            lock.unlock();
            // A key that is at neither node is answered TRYAGAIN until the slot has moved.
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            // sleep: the wait gets TRYAGAIN some times before the slot has moved
            Thread.sleep(200);
            cluster.endMove(slot, source, target);
            wait.get(60, TimeUnit.SECONDS).orElseThrow().release();
            assertTrue(lock.tryLock(30, TimeUnit.SECONDS));
            lock.unlock();
            // Keys of one slot are one request, others follow one after another.
            MultiLock many = client.multiLock(
                    client.lock("{" + key + "}1"), client.lock("{" + key + "}2"), client.lock("x"), client.lock("y"));
            many.lock();
            many.unlock();
            LockSemaphore semaphore = client.semaphore("s").limit(1);
            semaphore.acquire().release();
        }
    }

    @Test
    void a_release_at_a_hung_node_does_not_delay_locks_of_other_nodes() throws Exception {
        try (TestCluster cluster = TestCluster.start(2);
                LockClient client =
                        LockClient.builder(cluster.address()).responseTimeout(PATIENCE).build()) {
            FencedLock hung = client.lock(cluster.keyOf(cluster.node(0), "hung"));
            FencedLock alive = client.lock(cluster.keyOf(cluster.node(1), "alive"));
            alive.lock();
            alive.unlock();
            hung.lock();
            cluster.node(0).pause();
            assertThrows(LockConnectionException.class, hung::unlock);
            long start = System.nanoTime();
            for (int i = 0; i < 20; i++) {
                alive.lock();
                alive.unlock();
            }
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(took < 20_000, "each of them for half of the response timeout; took " + took);
            cluster.node(0).resume();
        }
    }

    /** A node that hangs is not taken for a failed one, and the others serve. */
    private static TestCluster startPatientNodes() {
        return TestCluster.start(3, "--cluster-node-timeout", "120000");
    }

    private static void assertServed(LockClient client, String key, TestServer node) throws Exception {
        FencedLock lock = client.lock(key);
        Guard first = lock.acquire();
        CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
        node.awaitTickets(1);
        first.release();
        wait.get(60, TimeUnit.SECONDS).orElseThrow().release();
    }

    @Test
    void a_new_client_serves_the_other_nodes_while_one_hangs() throws Exception {
        try (TestCluster cluster = startPatientNodes()) {
            TestServer alive = cluster.node(1);
            String key = cluster.keyOf(alive, "alive");
            cluster.node(0).pause();
            for (String address : List.of(cluster.address(), "redis+cluster://127.0.0.1:" + alive.port())) {
                try (LockClient client = LockClient.builder(address).responseTimeout(PATIENCE).build()) {
                    assertServed(client, key, alive);
                }
            }
            cluster.node(0).resume();
        }
    }

    @Test
    void locks_of_other_nodes_are_served_after_the_connection_of_a_hung_node_was_given_up() throws Exception {
        try (TestCluster cluster = startPatientNodes(); LockClient client =
                LockClient.builder(cluster.address()).responseTimeout(PATIENCE).build()) {
            TestServer alive = cluster.node(1);
            String key = cluster.keyOf(alive, "alive");
            client.lock(key).acquire().release();
            FencedLock hung = client.lock(cluster.keyOf(cluster.node(0), "hung"));
            FencedLock other = client.lock(cluster.keyOf(cluster.node(0), "other"));
            hung.lock();
            cluster.node(0).pause();
            // Two requests in a row without a reply close the connections to all nodes.
            assertThrows(LockConnectionException.class, hung::unlock);
            assertThrows(LockConnectionException.class, other::tryLock);
            assertServed(client, key, alive);
            cluster.node(0).resume();
        }
    }

    @Test
    void a_latch_is_counted_down_at_most_once_while_its_slot_is_moved() throws Exception {
        try (TestCluster cluster = TestCluster.start(2); LockClient client = Clients.create(cluster.address())) {
            TestServer source = cluster.node(0);
            TestServer target = cluster.node(1);
            Latch latch = client.latch(cluster.keyOf(source, "latch"));
            int slot = cluster.slotOf(new String(latch.key(), StandardCharsets.UTF_8));
            latch.set(100_000);
            AtomicBoolean isOver = new AtomicBoolean();
            AtomicLong unheard = new AtomicLong();
            List<Long> counts = new ArrayList<>();
            CompletableFuture<Void> counting = CompletableFuture.runAsync(() -> {
                while (!isOver.get()) {
                    try {
                        counts.add(latch.countDown());
                    } catch (UnheardException mayHaveBeenServed) {
                        unheard.incrementAndGet();
                    }
                }
            });
            cluster.move(slot, source, target);
            // Broken connections leave it open whether the count was changed; nothing is counted twice.
            for (int i = 0; i < 5; i++) {
                target.killClients(each -> each.get("cmd").startsWith("latch"));
            }
            cluster.move(slot, target, source);
            isOver.set(true);
            counting.get(20, TimeUnit.SECONDS);
            long served = 100_000 - latch.count();
            assertTrue(counts.size() > 10, counts.size() + " counts");
            assertEquals(counts.size(), Set.copyOf(counts).size(), "each reply is of another count");
            assertTrue(served >= counts.size() && served <= counts.size() + unheard.get(),
                    served + " served, " + counts.size() + " answered, " + unheard + " unheard");
        }
    }

    @Test
    void waits_follow_a_promotion_in_a_cluster() throws Exception {
        try (TestCluster cluster = TestCluster.startWithReplicas(3);
                LockClient client = Clients.create(cluster.address())) {
            String key = cluster.keyOf(cluster.node(0), "promoted");
            FencedLock lock = client.lock(key);
            Guard first = lock.acquire();
            ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
            List<CompletableFuture<?>> waits = line(cluster.node(0), lock, 5, order);
            cluster.failOver(0);
            Waiting.waitFor("the tickets at the new primary", () -> cluster.node(3).stat("tickets") == 5);
            assertEquals(Released.YES, first.release());
            CompletableFuture.allOf(waits.toArray(CompletableFuture<?>[]::new)).get(60, TimeUnit.SECONDS);
            assertEquals(5, order.size());
        }
    }

    @Test
    void a_killed_node_of_a_cluster_is_replaced() throws Exception {
        // Half of the response timeout passes before the subscription at the killed node is given up.
        try (TestCluster cluster = TestCluster.startWithReplicas(3); LockClient client =
                LockClient.builder(cluster.address()).responseTimeout(PATIENCE).build()) {
            FencedLock lock = client.lock(cluster.keyOf(cluster.node(0), "killed"));
            Guard first = lock.acquire();
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            cluster.node(0).awaitTickets(1);
            cluster.node(0).kill();
            first.close();
            Guard next = wait.get(60, TimeUnit.SECONDS).orElseThrow();
            assertEquals(Released.YES, next.release());
            cluster.node(0).startAgain();
        }
    }

    @Test
    void the_end_of_the_client_of_a_cluster_is_no_warning() throws Exception {
        try (TestCluster cluster = TestCluster.start(2);
                LossTest.Warnings warnings = new LossTest.Warnings("io.lettuce")) {
            try (LockClient client = Clients.create(cluster.address())) {
                Guard guard = client.lock("k").acquire();
                assertTrue(client.lock("k").acquireWithin(Duration.ofMillis(50)).isEmpty());
                guard.release();
            }
            assertEquals(List.of(), List.copyOf(warnings.texts));
        }
    }

    @Test
    void sentinels_name_the_next_primary() throws Exception {
        try (Sentinels fleet = Sentinels.start(1, 3)) {
            RedisClient lettuce = RedisClient.create(uri(fleet));
            try (LockClient client =
                    LockClient.builder(lettuce).responseTimeout(Duration.ofMinutes(1)).build()) {
                FencedLock lock = client.lock("k");
                lock.lock();
                lock.unlock();
            } finally {
                lettuce.shutdown();
            }
            try (LockClient client = Clients.create(fleet.address())) {
                FencedLock lock = client.lock("k");
                TestServer old = fleet.primary();
                Guard first = lock.acquire();
                CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
                old.awaitTickets(1);
                fleet.failOver();
                fleet.awaitAnotherPrimaryThan(old);
                first.close();
                Guard next = wait.get(60, TimeUnit.SECONDS).orElseThrow();
                Waiting.waitFor("the hold at the new primary", () -> fleet.primary() != old);
                assertEquals(Released.YES, next.release());
            }
        }
    }

    private static RedisURI uri(Sentinels fleet) {
        RedisURI.Builder uri = RedisURI.Builder.sentinel("127.0.0.1", fleet.ports().get(0), Sentinels.NAME);
        fleet.ports().stream().skip(1).forEach(port -> uri.withSentinel("127.0.0.1", port));
        return uri.build();
    }

    @Test
    void a_promoted_replica_behind_one_address_is_followed() throws Exception {
        try (TestServer primary = TestServer.start(); TestServer replica = TestServer.start()) {
            replica.follow(primary);
            replica.awaitSync(primary);
            try (LockClient client = Clients.create(primary.address())) {
                Guard guard = client.lock("k", LockOptions.defaults().lease(Duration.ofSeconds(3))).acquire();
                replica.promote();
                primary.follow(replica);
                // A single address that leads to a replica for good: the renewals are refused.
                Lost lost = guard.lost().get(60, TimeUnit.SECONDS);
                assertTrue(lost.reason() == LostReason.REFUSED || lost.reason() == LostReason.TAKEN
                        || lost.reason() == LostReason.UNCONFIRMED, lost.toString());
                assertThrows(LockLostException.class, guard::close);
                // The release of the guard gets the same answer, after which it closes the connection of both.
                Waiting.waitFor("a refusal", () -> assertThrows(LockException.class, client.lock("k")::tryAcquire)
                        instanceof RefusedException refused && refused.code().equals("READONLY"));
                RefusedException refused = assertThrows(RefusedException.class, client.lock("w")::lock);
                assertEquals("READONLY", refused.code(), "there is no other server to ask");
                primary.promote();
                client.lock("w").acquire().release();
            }
        }
    }

    /** A client of the program does not say whether there are other servers to ask. */
    @Test
    void a_replica_is_an_error_also_through_a_client_of_the_program() throws Exception {
        try (TestServer primary = TestServer.start(); TestServer replica = TestServer.start()) {
            replica.follow(primary);
            replica.awaitSync(primary);
            RedisClient lettuce = RedisClient.create(replica.address());
            try (LockClient client =
                    LockClient.builder(lettuce).responseTimeout(Duration.ofSeconds(3)).build()) {
                MultiLock both = client.multiLock(client.lock("a"), client.lock("b"));
                for (Executable attempt : List.<Executable>of(client.lock("k")::lock, client.lock("k")::tryLock,
                        () -> client.lock("k", LockOptions.defaults().session()).acquire(), both::lock,
                        client.readWriteLock("rw").writeLock()::lock, () -> client.semaphore("s").limit(1).acquire(),
                        () -> client.election("e").campaign("here"))) {
                    RefusedException refused = assertTimeoutPreemptively(Duration.ofMinutes(1),
                            () -> assertThrows(RefusedException.class, attempt));
                    assertEquals("READONLY", refused.code());
                }
            } finally {
                lettuce.shutdown();
            }
        }
    }

    @Test
    void a_wait_at_a_server_that_becomes_a_replica_is_logged_and_ends() throws Exception {
        try (TestServer primary = TestServer.start(); TestServer replica = TestServer.start();
                LossTest.Warnings warnings = new LossTest.Warnings();
                LockClient client = Clients.create(primary.address())) {
            client.lock("k").acquire();
            CompletableFuture<Optional<Guard>> wait = client.lock("k").acquireAsync(null);
            primary.awaitTickets(1);
            primary.follow(replica);
            Waiting.waitFor("the warning", () -> warnings.texts.stream().anyMatch(
                    text -> text.contains("have been refused") && text.contains("READONLY")));
            assertFalse(wait.isDone(), "the address may lead to another server soon");
            Exception refused = assertThrows(ExecutionException.class, () -> wait.get(90, TimeUnit.SECONDS));
            assertTrue(refused.getCause().getMessage().contains("READONLY"), refused::toString);
            primary.promote();
        }
    }

    @Test
    void tls_is_verified() throws Exception {
        try (Certificates certificates = Certificates.create();
                TestServer server = TestServer.builder().tls(certificates).start()) {
            String address = "rediss://127.0.0.1:" + server.tlsPort();
            SslOptions trusting = SslOptions.builder().jdkSslProvider()
                    .trustManager(certificates.authority().toFile()).build();
            try (LockClient client = LockClient.builder(address)
                    .sslOptions(trusting).responseTimeout(Duration.ofMinutes(1)).build()) {
                Guard guard = client.lock("k").acquire();
                CompletableFuture<Optional<Guard>> wait = client.lock("k").acquireAsync(null);
                server.awaitTickets(1);
                guard.release();
                wait.get(60, TimeUnit.SECONDS).orElseThrow().release();
            }
            try (LockClient client = Clients.create(address)) {
                UntrustedException refused =
                        assertThrows(UntrustedException.class, () -> client.lock("k").tryLock(5, TimeUnit.SECONDS));
                assertTrue(refused.getMessage().contains("127.0.0.1:" + server.tlsPort()));
                assertThrows(UntrustedException.class, client.lock("k")::lock);
            }
        }
    }

    @Test
    void a_password_and_a_database_are_used() throws Exception {
        try (TestServer server = TestServer.builder().password("p%40ss:w").start()) {
            String encoded = "redis://:p%2540ss%3Aw@127.0.0.1:" + server.port() + "/3";
            try (LockClient client = Clients.create(encoded)) {
                assertEquals("127.0.0.1:" + server.port() + "/3", client.name());
                Guard guard = client.lock("k").acquire();
                CompletableFuture<Optional<Guard>> wait = client.lock("k").acquireAsync(null);
                server.awaitTickets(1);
                assertTrue(server.info("keyspace").contains("db3"));
                guard.release();
                wait.get(60, TimeUnit.SECONDS).orElseThrow().release();
            }
        }
    }
}
