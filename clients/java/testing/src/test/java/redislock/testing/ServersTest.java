package redislock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What the tests of the other modules rely on. */
class ServersTest {
    @Test
    void a_server_leaves_nothing_behind() {
        TestServer server = TestServer.start();
        Path dir = server.dir();
        assertTrue(server.port() < 32_768);
        assertTrue(server.call("LOCK.ACQUIRE", "a", "owner") instanceof Long);
        assertEquals(1, server.stat("grants"));
        server.close();
        server.close();
        assertFalse(server.isAlive());
        assertFalse(Files.exists(dir));
    }

    @Test
    void a_server_without_the_module() {
        try (TestServer server = TestServer.withoutModule()) {
            assertTrue(server.line("LOCK.OWNER") instanceof Conn.Failure failure && failure.is("ERR"));
        }
    }

    @Test
    void a_crash_that_the_test_did_not_cause_is_an_error() {
        TestServer server = TestServer.start();
        assertThrows(UncheckedIOException.class, () -> server.line("SHUTDOWN NOSAVE"));
        Waiting.waitFor("the end", () -> !server.isAlive());
        assertThrows(AssertionError.class, server::close);
        assertFalse(Files.exists(server.dir()));
    }

    @Test
    void a_server_restarts_on_its_port() {
        try (TestServer server = TestServer.start()) {
            long pid = server.pid();
            server.restart();
            assertNotEquals(pid, server.pid());
            assertEquals("PONG", server.line("PING"));
        }
    }

    @Test
    void a_paused_server_answers_nothing() {
        try (TestServer server = TestServer.start(); Conn conn = server.conn()) {
            conn.setPatience(Duration.ofMillis(100));
            server.pause();
            assertThrows(UncheckedIOException.class, () -> conn.line("PING"));
            server.resume();
            assertEquals("PONG", server.line("PING"));
            server.pause();
        }
    }

    @Test
    void connections_are_listed_and_closed() {
        try (TestServer server = TestServer.start(); Conn conn = server.conn()) {
            conn.line("CLIENT SETNAME mine");
            assertEquals(List.of("mine"), server.clients().stream().map(client -> client.get("name")).toList());
            assertEquals(1, server.killClients(client -> client.get("name").equals("mine")));
            assertThrows(UncheckedIOException.class, () -> conn.line("PING"));
        }
    }

    @Test
    void users_passwords_and_certificates() {
        try (Certificates certificates = Certificates.create();
                TestServer server = TestServer.builder().users().tls(certificates).start()) {
            assertTrue(server.tlsPort() > 0);
            assertTrue(Files.exists(certificates.authority()));
            try (Conn conn = server.conn()) {
                conn.expect("AUTH", "app", "change-me-app");
                assertTrue(conn.line("GET lock:a") instanceof Conn.Failure failure && failure.is("NOPERM"));
            }
        }
        try (TestServer server = TestServer.builder().password("secret").start(); Conn conn = new Conn(server.port())) {
            assertTrue(conn.line("PING") instanceof Conn.Failure failure && failure.is("NOAUTH"));
        }
    }

    @Test
    void a_replica_is_promoted() {
        try (TestServer primary = TestServer.start(); TestServer replica = TestServer.start()) {
            replica.follow(primary);
            primary.line("SET key value");
            replica.awaitSync(primary);
            primary.kill();
            replica.promote();
            assertEquals("value", replica.line("GET key"));
            assertEquals("OK", replica.line("SET key other"));
        }
    }

    @Test
    void sentinels_replace_a_dead_primary() {
        try (Sentinels sentinels = Sentinels.start(1, 1)) {
            TestServer primary = sentinels.primary();
            primary.kill();
            assertEquals(sentinels.servers().get(1), sentinels.awaitAnotherPrimaryThan(primary));
        }
    }

    @Test
    void a_slot_moves_with_its_keys() {
        try (TestCluster cluster = TestCluster.start(2)) {
            TestServer source = cluster.node(0);
            String key = cluster.keyOf(source, "key");
            source.call("LOCK.ACQUIRE", key, "owner");
            cluster.move(cluster.slotOf(key), source, cluster.node(1));
            assertTrue(cluster.node(1).call("LOCK.INFO", key) instanceof List<?>);
            assertTrue(source.call("LOCK.INFO", key) instanceof Conn.Failure failure && failure.is("MOVED"));
        }
    }

    @Test
    void a_replica_of_a_cluster_takes_over() {
        try (TestCluster cluster = TestCluster.startWithReplicas(1)) {
            cluster.failOver(0);
            assertEquals("slave", cluster.node(0).infoField("replication", "role"));
        }
    }
}
