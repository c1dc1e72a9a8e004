package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.Sentinels;
import redislock.testing.TestCluster;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Grants that replicas have. */
class ReplicasTest extends TwoClients {
    private static final LockOptions ONE = LockOptions.defaults().replicas(1).replicasWithin(Waiting.PATIENCE);
    private static final LockOptions TWO = LockOptions.defaults().replicas(2);

    private static TestServer server;
    private static TestServer replica;

    ReplicasTest() {
        super(server);
    }

    @BeforeAll
    static void start() {
        server = TestServer.start();
        replica = TestServer.start();
        replica.follow(server);
    }

    @AfterAll
    static void stop() {
        replica.close();
        server.close();
    }

    /** The connections of a server that wait for its replicas, or have done so last. */
    private static List<Map<String, String>> waits(TestServer at) {
        return at.clients().stream().filter(each -> "wait".equals(each.get("cmd"))).toList();
    }

    @AfterEach
    void noConnectionIsLeft() {
        closeClients();
        assertEquals(List.of(), waits(server));
    }

    /** The locks are free at once, and nothing is left. */
    private void assertFree(LockException error, String... keys) throws Exception {
        NotReplicatedException failed = (NotReplicatedException) error;
        assertEquals(List.of(2, 1), List.of(failed.wanted(), failed.had()));
        assertTrue(failed.getMessage().endsWith(": 1 of 2 replicas have the grant within 100 ms"), failed.getMessage());
        for (String key : keys) {
            other.lock(key).acquireWithin(Waiting.PATIENCE).orElseThrow().release();
        }
        assertEquals(List.of(), client.settled(Waiting.PATIENCE));
        assertEquals(0, client.statistics().holds());
    }

    @Test
    void a_grant_is_one_that_a_replica_has() throws Exception {
        try (Guard guard = client.lock("k", ONE).acquire()) {
            assertEquals(1L, replica.call("EXISTS", "k"));
            assertEquals(guard.token(), client.lock("k").info().holders().get(0).token());
        }
        FencedLock lock = client.lock("thread", ONE);
        lock.lock();
        lock.lock();
        assertEquals(1L, replica.call("EXISTS", "thread"));
        lock.unlock();
        lock.unlock();
        FencedReadWriteLock both = client.readWriteLock("both", ONE);
        Guard reader = both.readLock().acquire();
        assertEquals(1L, replica.call("EXISTS", "both"));
        both.readLock().acquire().release();
        assertEquals(Released.YES, reader.release());
        both.writeLock().acquire().release();
        Permit permit = client.semaphore("permits", ONE.limit(1)).acquire();
        assertEquals(1L, replica.call("EXISTS", "permits"));
        assertEquals(Released.YES, permit.release());
        MultiGuard several = client.multiLock(client.lock("a", ONE), client.lock("b", ONE)).acquire();
        assertEquals(2L, replica.call("EXISTS", "a", "b"));
        assertEquals(Released.YES, several.release());
    }

    @Test
    void a_grant_that_too_few_replicas_have_is_given_back() throws Exception {
        assertFree(assertThrows(LockException.class, client.lock("k", TWO)::tryAcquire), "k");
        assertFree(assertThrows(LockException.class, client.lock("k", TWO)::lock), "k");
        assertEquals(0, client.lock("k", TWO).getHoldCount());
        assertFree(assertThrows(LockException.class,
                client.multiLock(client.lock("a", TWO), client.lock("b", TWO))::acquire), "a", "b");
        assertFree(assertThrows(LockException.class, client.readWriteLock("both", TWO).writeLock()::acquire));
        LockSemaphore permits = client.semaphore("permits", TWO.limit(1));
        assertFree(assertThrows(LockException.class, permits::acquire));
        Waiting.waitFor("the free permit", () -> permits.info().orElseThrow().free() == 1);
        assertEquals(6, client.statistics().acquisitionsFailed());
    }

    @Test
    void the_error_comes_when_the_grant_is_given_back() throws Exception {
        try (Proxy proxy = Proxy.before(server.port()); LockClient late = Clients.create(proxy.address())) {
            proxy.delay("LOCK.RELEASE");
            CompletableFuture<Optional<Guard>> grant = late.lock("k", TWO).acquireAsync(null);
            Waiting.waitFor("the release", proxy::hasDelayed);
            assertThrows(TimeoutException.class, () -> grant.get(100, TimeUnit.MILLISECONDS));
            proxy.letGo();
            assertThrows(ExecutionException.class, () -> grant.get(60, TimeUnit.SECONDS));
            assertTrue(other.lock("k").tryAcquire().isPresent());
        }
    }

    @Test
    void the_error_does_not_wait_for_a_silent_server() throws Exception {
        try (Proxy proxy = Proxy.before(server.port());
                LockClient late = LockClient.builder(proxy.address()).responseTimeout(Duration.ofSeconds(2)).build()) {
            proxy.delay("LOCK.RELEASE");
            FencedLock lock = late.lock("k", TWO.lease(Duration.ofMinutes(10)));
            CompletableFuture<Optional<Guard>> grant = lock.acquireAsync(null);
            Waiting.waitFor("the release", proxy::hasDelayed);
            proxy.hang(true);
            Throwable failure = assertThrows(ExecutionException.class, () -> grant.get(60, TimeUnit.SECONDS));
            assertEquals(NotReplicatedException.class, failure.getCause().getClass());
            proxy.hang(false);
            proxy.letGo();
        }
    }

    @Test
    void a_grant_after_a_wait_is_checked_too() throws Exception {
        Guard held = other.lock("k").acquire();
        CompletableFuture<Optional<Guard>> one = client.lock("k", ONE).acquireAsync(null);
        server.awaitTickets(1);
        CompletableFuture<Optional<Guard>> two = client.lock("k", TWO).acquireAsync(null);
        server.awaitTickets(2);
        held.release();
        Guard granted = one.get(60, TimeUnit.SECONDS).orElseThrow();
        assertEquals(1L, replica.call("EXISTS", "k"));
        assertEquals(Released.YES, granted.release());
        Throwable failure = assertThrows(Exception.class, () -> two.get(60, TimeUnit.SECONDS)).getCause();
        assertFree((LockException) failure, "k");
    }

    @Test
    void other_locks_do_not_wait_for_a_replica_and_grants_share_the_next_request() throws Exception {
        client.lock("warm", ONE).acquire().release();
        List<CompletableFuture<Optional<Guard>>> grants = new ArrayList<>();
        server.call("CONFIG", "RESETSTAT");
        replica.pause();
        try {
            for (int i = 0; i < 5; i++) {
                String key = "k" + i;
                grants.add(client.lock(key, ONE).acquireAsync(null));
                Waiting.waitFor("a grant at the server", () -> Long.valueOf(1).equals(server.call("EXISTS", key)));
            }
            client.lock("beside").acquire().release();
            assertFalse(grants.stream().anyMatch(CompletableFuture::isDone));
        } finally {
            replica.resume();
        }
        for (CompletableFuture<Optional<Guard>> each : grants) {
            each.get(60, TimeUnit.SECONDS).orElseThrow().release();
        }
        assertTrue(server.info("commandstats").contains("cmdstat_wait:calls=2,"), server.info("commandstats"));
    }

    @Test
    void a_replica_that_hangs_is_waited_for_as_long_as_the_program_says() throws Exception {
        replica.pause();
        try {
            NotReplicatedException failed = assertThrows(NotReplicatedException.class,
                    client.lock("k", ONE.replicasWithin(Duration.ofMillis(50)))::tryAcquire);
            assertEquals(0, failed.had());
            other.lock("k").acquireWithin(Waiting.PATIENCE).orElseThrow().release();
        } finally {
            replica.resume();
        }
        Waiting.waitFor("the replica", () -> Long.valueOf(1).equals(server.line("WAIT 1 1000")));
    }

    @Test
    void a_wait_for_a_replica_is_withdrawn() throws Exception {
        replica.pause();
        try {
            CompletableFuture<Optional<Guard>> grant = client.lock("k", ONE).acquireAsync(null);
            Waiting.waitFor("a grant at the server", () -> Long.valueOf(1).equals(server.call("EXISTS", "k")));
            grant.cancel(true);
            other.lock("k").acquireWithin(Waiting.PATIENCE).orElseThrow().release();
        } finally {
            replica.resume();
        }
    }

    @Test
    void a_connection_that_has_ended_is_opened_again() throws Exception {
        client.lock("k", ONE).acquire().release();
        assertEquals(1, server.killClients(each -> "wait".equals(each.get("cmd"))));
        client.lock("k", ONE).acquire().release();
    }

    @Test
    void in_a_cluster_the_replica_is_that_of_the_node() throws Exception {
        try (TestCluster cluster = TestCluster.startWithReplicas(2);
                LockClient of = Clients.create(cluster.address())) {
            for (int i = 0; i < 2; i++) {
                String key = cluster.keyOf(cluster.node(i), "replicated");
                of.lock(key, ONE).acquire().release();
                assertThrows(NotReplicatedException.class, of.lock(key, TWO)::tryAcquire);
            }
        }
    }

    @Test
    void a_slot_that_moves_between_the_grant_and_the_look_at_the_replicas() throws Exception {
        try (TestCluster cluster = TestCluster.startWithReplicas(2);
                LockClient of = Clients.create(cluster.address())) {
            TestServer source = cluster.node(0);
            String key = cluster.keyOf(source, "moved");
            // The node has one look at a time: this one lasts until it is ended.
            CompletableFuture<Optional<Guard>> long1 =
                    of.lock(cluster.keyOf(source, "long"), ONE.replicas(2)).acquireAsync(null);
            Waiting.waitFor("the look", () -> waits(source).stream().anyMatch(each -> each.get("flags").equals("b")));
            CompletableFuture<Optional<Guard>> grant = of.lock(key, ONE).acquireAsync(null);
            Waiting.waitFor("a grant at the server", () -> Long.valueOf(1).equals(source.call("EXISTS", key)));
            cluster.move(cluster.slotOf(key), source, cluster.node(1));
            assertFalse(grant.isDone());
            assertEquals(1L, source.call("CLIENT", "UNBLOCK", waits(source).get(0).get("id")));
            assertEquals(Released.YES, grant.get(60, TimeUnit.SECONDS).orElseThrow().release());
            assertThrows(ExecutionException.class, () -> long1.get(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void the_replica_is_that_of_the_primary_which_sentinels_name() throws Exception {
        try (Sentinels fleet = Sentinels.start(1, 3); LockClient of = Clients.create(fleet.address())) {
            TestServer old = fleet.primary();
            of.lock("k", ONE).acquire().release();
            fleet.failOver();
            fleet.awaitAnotherPrimaryThan(old);
            // A fail-over ends the connections, perhaps that of a request.
            Waiting.waitFor("a grant", () -> {
                try {
                    Guard guard = of.lock("k", ONE).acquireUninterruptibly();
                    assertEquals(1L, old.call("EXISTS", "k"));
                    return guard.release() == Released.YES;
                } catch (LockConnectionException ended) {
                    return false;
                }
            });
            assertThrows(NotReplicatedException.class, of.lock("k", TWO)::tryAcquire);
        }
    }

    @Test
    void wrong_options_are_refused() {
        LockOptions options = LockOptions.defaults();
        for (Runnable wrong : List.<Runnable>of(() -> options.replicas(0), () -> options.replicas(101),
                () -> options.replicasWithin(Duration.ZERO), () -> options.replicasWithin(Duration.ofDays(2)),
                () -> client.lock("k", ONE.session()))) {
            assertThrows(IllegalArgumentException.class, wrong::run);
        }
    }
}
