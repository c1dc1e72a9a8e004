package redislock.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.UncheckedIOException;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What a proxy does to requests and replies. */
class ProxyTest {
    private final TestServer server = TestServer.start();
    private final Proxy proxy = Proxy.before(server.port());
    private final Conn conn = new Conn(proxy.port());

    @AfterEach
    void close() {
        try (server; proxy) {
            conn.close();
        }
    }

    @Test
    void a_swallowed_reply_belongs_to_an_executed_request() {
        proxy.swallowReplyTo("INCR");
        assertFalse(proxy.hasSwallowed());
        assertThrows(UncheckedIOException.class, () -> conn.line("INCR n"));
        assertTrue(proxy.hasSwallowed());
        assertEquals("1", server.line("GET n"));
    }

    @Test
    void a_delayed_request_arrives_after_its_connection() {
        proxy.delay("INCR");
        conn.send("INCR", "n");
        Waiting.waitFor("the request", proxy::hasDelayed);
        assertNull(server.line("GET n"));
        conn.close();
        proxy.letGo();
        Waiting.waitFor("the late request", () -> "1".equals(server.line("GET n")));
    }

    @Test
    void a_held_reply_arrives_later() {
        proxy.holdReplyTo("INCR");
        conn.send("INCR", "n");
        Waiting.waitFor("the request", () -> "1".equals(server.line("GET n")));
        proxy.letGo();
        assertEquals(1L, conn.receive());
    }

    @Test
    void a_hanging_proxy_carries_nothing() {
        assertEquals("PONG", conn.line("PING"));
        proxy.hang(true);
        conn.setPatience(Duration.ofMillis(100));
        assertThrows(UncheckedIOException.class, () -> conn.line("PING"));
        proxy.hang(false);
        conn.setPatience(Waiting.PATIENCE);
        assertEquals("PONG", conn.receive());
    }

    @Test
    void connections_are_dropped_and_refused() {
        assertEquals("PONG", conn.line("PING"));
        proxy.refuse(true);
        proxy.drop();
        assertThrows(UncheckedIOException.class, () -> conn.line("PING"));
        try (Conn another = new Conn(proxy.port())) {
            assertThrows(UncheckedIOException.class, () -> another.line("PING"));
        }
        proxy.refuse(false);
        try (Conn another = new Conn(proxy.port())) {
            assertEquals("PONG", another.line("PING"));
        }
        assertEquals(3, proxy.accepted());
    }
}
