package redislock;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import redislock.Election.Leader;
import redislock.internal.net.Errors;
import redislock.testing.Conn;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Elections, notes, and commands under a lock. */
class ElectionTest {
    private static final LockOptions QUICK = LockOptions.defaults().lease(Duration.ofSeconds(6));

    private static LockClient client(TestServer server) {
        return LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1)).build();
    }

    @Test
    void a_command_under_the_lock_runs_only_while_it_is_held() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = client(server)) {
            Guard guard = client.lock("k").acquire();
            assertArrayEquals(new byte[] {'O', 'K'}, (byte[]) guard.execute("SET", "data", 1));
            assertEquals(6L, guard.execute("INCRBY", "data", 5));
            assertNull(guard.execute("GET", "none"));
            assertArrayEquals(new byte[] {'6'}, (byte[]) guard.execute("GET", "data"));
            assertEquals(2, ((List<?>) guard.execute("MGET", "data", "none")).size());
            RefusedException refused = assertThrows(RefusedException.class, () -> guard.execute("GET", "data", "data"));
            assertTrue(refused.getMessage().contains("wrong number"), refused.getMessage());
            try (Conn conn = server.conn()) {
                conn.expect("LOCK.BREAK", "k");
            }
            assertThrows(LockLostException.class, () -> guard.execute("SET", "data", 9));
            Waiting.waitFor("the loss that the reply proves", () -> guard.lostReason() == LostReason.TAKEN);
            assertArrayEquals(new byte[] {'6'}, ((String) server.line("GET data")).getBytes());
        }
    }

    /** A refusal that may have another cause than a loss: the server is asked. */
    @Test
    void a_reply_that_may_prove_a_loss_is_looked_into() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = client(server)) {
            server.line("RPUSH list x");
            Guard guard = client.lock("k").acquire();
            assertThrows(RefusedException.class, () -> guard.execute("GET", "list"));
            assertNull(guard.lostReason());
            server.line("DEL k");
            server.line("RPUSH k x");
            assertThrows(LockLostException.class, () -> guard.execute("SET", "data", 9));
            Waiting.waitFor("the loss", () -> guard.lostReason() == LostReason.TAKEN);
            server.line("DEL k");
            Guard noted = client.lock("k").acquire();
            server.line("SET k x");
            assertEquals(false, noted.note("late"));
            Waiting.waitFor("the loss", () -> noted.lostReason() == LostReason.REFUSED);
        }
    }

    @Test
    void an_observation_without_a_right_ends_with_a_warning() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = client(server);
                LossTest.Warnings warnings = new LossTest.Warnings()) {
            server.line("ACL SETUSER default -lock.info");
            AtomicInteger seen = new AtomicInteger();
            client.election("k", QUICK).observe(leader -> seen.incrementAndGet());
            Waiting.waitFor("a warning", () -> !warnings.texts.isEmpty());
            server.line("ACL SETUSER default +lock.info");
            assertObserved(client.election("k", QUICK), error -> {});
            String text = String.join("; ", warnings.texts);
            assertTrue(text.startsWith("the leader of k is not known: ") && text.contains("NOPERM"), text);
            assertEquals(0, seen.get());
        }
    }

    /** An observation that begins now is told of two changes, so that an older one of the client had its time. */
    private static void assertObserved(Election election, Consumer<RuntimeException> failed) throws Exception {
        BlockingQueue<Optional<Leader>> seen = new LinkedBlockingQueue<>();
        election.observe(seen::add, failed);
        assertEquals(Optional.empty(), seen.poll(60, TimeUnit.SECONDS));
        election.campaign("b:1");
        assertEquals("b:1", seen.poll(60, TimeUnit.SECONDS).orElseThrow().note());
    }

    @Test
    void an_observer_is_told_of_failures_and_of_the_end() throws Exception {
        try (TestServer server = TestServer.start(); LossTest.Warnings warnings = new LossTest.Warnings()) {
            BlockingQueue<Optional<Leader>> seen = new LinkedBlockingQueue<>();
            BlockingQueue<RuntimeException> failures = new LinkedBlockingQueue<>();
            try (LockClient client = client(server)) {
                client.election("k", QUICK).observe(leader -> {
                    seen.add(leader);
                    throw new IllegalStateException("of the program");
                }, failures::add);
                assertEquals(Optional.empty(), seen.poll(60, TimeUnit.SECONDS));
                server.line("CONFIG SET replica-serve-stale-data no");
                server.line("REPLICAOF 127.0.0.1 1");
                assertEquals("MASTERDOWN", Errors.code(failures.poll(60, TimeUnit.SECONDS)));
                server.line("REPLICAOF NO ONE");
                Guard leader = client.election("k", QUICK).campaign("a:1");
                assertEquals(Optional.of(new Leader("a:1", leader.token())), seen.poll(60, TimeUnit.SECONDS));
                server.line("ACL SETUSER default -lock.info");
                assertTrue(failures.poll(60, TimeUnit.SECONDS) instanceof PermissionException);
                server.line("ACL SETUSER default +lock.info");
                assertObserved(client.election("other", QUICK), failures::add);
            }
            assertTrue(failures.poll(60, TimeUnit.SECONDS) instanceof LockClosedException);
            assertTrue(failures.isEmpty() && seen.isEmpty(), "each once: " + failures + seen);
            assertEquals(List.of("the observer of an election has failed", "the observer of an election has failed"),
                    List.copyOf(warnings.texts));
        }
    }

    @Test
    void leaders_follow_each_other_and_each_change_is_told_once() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = client(server)) {
            Election election = client.election("k", QUICK);
            BlockingQueue<Optional<String>> seen = new LinkedBlockingQueue<>();
            AutoCloseable observation = election.observe(leader -> seen.add(leader.map(Leader::note)));
            try {
                assertEquals(Optional.empty(), seen.poll(60, TimeUnit.SECONDS));
                assertEquals(Optional.empty(), election.leader());
                Guard first = election.campaign("a:1");
                assertEquals(Optional.of(new Leader("a:1", first.token())), election.leader());
                assertEquals(Optional.of("a:1"), seen.poll(60, TimeUnit.SECONDS));
                assertTrue(first.note("a:2"));
                assertEquals(Optional.of("a:2"), seen.poll(60, TimeUnit.SECONDS));
                CompletableFuture<Optional<Guard>> candidate = election.campaignAsync("b:1", null);
                server.awaitTickets(1);
                assertEquals(Released.YES, first.release());
                Guard second = candidate.get(60, TimeUnit.SECONDS).orElseThrow();
                assertEquals(Optional.of("b:1"), seen.poll(60, TimeUnit.SECONDS));
                server.line("LOCK.BREAK k");
                assertEquals(Optional.empty(), seen.poll(60, TimeUnit.SECONDS));
                assertEquals(LostReason.TAKEN, second.lost().get(60, TimeUnit.SECONDS).reason());
                assertEquals(false, second.note("late"));
            } finally {
                observation.close();
            }
            assertTrue(seen.isEmpty(), seen.toString());
        }
    }

    @Test
    void notes_are_bounded_and_of_exclusive_locks_only() {
        try (TestServer server = TestServer.start(); LockClient client = client(server)) {
            LockOptions noted = LockOptions.defaults().note("here");
            assertThrows(IllegalArgumentException.class, () -> client.readWriteLock("k", noted));
            assertThrows(IllegalArgumentException.class, () -> client.semaphore("k", noted));
            assertThrows(IllegalArgumentException.class, () -> client.multiLock(client.lock("k", noted)));
            assertThrows(IllegalArgumentException.class, () -> LockOptions.defaults().note("x".repeat(257)));
            client.lock("k", noted.owner("me")).acquireUninterruptibly();
            assertEquals("here", server.line("HGET k #note:me"));
        }
    }

    @Test
    void a_lock_of_another_library_is_a_lock() {
        try (TestServer server = TestServer.builder().options("--lock.string-holders", "yes").start();
                LockClient client = client(server)) {
            server.line("SET k secret NX PX 600000");
            assertTrue(client.lock("k").isLocked());
            assertTrue(client.lock("k").remainTimeToLive() > 0);
            assertTrue(client.lock("k").tryAcquire().isEmpty());
        }
    }
}
