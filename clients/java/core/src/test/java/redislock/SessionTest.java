package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.testing.Proxy;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Holds that are bound to a connection. The server renews them as long as it believes that the connection lives. */
class SessionTest {
    private static final Duration TIMEOUT = Duration.ofMillis(400);
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private final TestServer server = TestServer.start();
    private final Proxy proxy = Proxy.before(server.port());
    private final LockClient client = LockClient.builder(proxy.address()).responseTimeout(TIMEOUT).build();

    @AfterEach
    void close() {
        try (server; proxy) {
            client.close();
        }
    }

    private boolean isHeld(String key) {
        return server.call("LOCK.INFO", key) != null;
    }

    /** The connections lead nowhere, and new ones are refused. */
    private void interrupt() {
        proxy.refuse(true);
        proxy.cut();
    }

    @Test
    void a_grant_that_is_not_confirmed_is_undone_however_long_the_network_is_interrupted() throws Exception {
        LockOptions options = LockOptions.defaults().session().lease(Duration.ofSeconds(1));
        for (LockOptions each : List.of(options, options.owner("me"))) {
            proxy.delay("LOCK.RENEW");
            CompletableFuture<Optional<Guard>> wait = client.lock("k", each).acquireAsync(Duration.ofSeconds(2));
            Waiting.waitFor("the grant", proxy::hasDelayed);
            interrupt();
            proxy.letGo();
            ExecutionException failed = assertThrows(ExecutionException.class, () -> wait.get(5, TimeUnit.SECONDS));
            assertEquals(LockConnectionException.class, failed.getCause().getClass());
            assertTrue(isHeld("k"));
            proxy.refuse(false);
            assertEquals(List.of(), client.settled(PATIENCE));
            Waiting.waitFor("the undoing", PATIENCE, () -> !isHeld("k"));
        }
    }

    @Test
    void a_release_goes_on_while_the_server_renews() throws Exception {
        server.call("CONFIG", "SET", "lock.session-lease", "1000");
        Guard released = client.lock("released", LockOptions.defaults().session()).acquire();
        Guard lost = client.lock("lost", LockOptions.defaults().session().owner("me")).acquire();
        interrupt();
        assertThrows(LockConnectionException.class, released::release);
        assertNotNull(lost.lost().get(5, TimeUnit.SECONDS));
        assertThrows(LockLostException.class, lost::close);
        // sleep: longer than the lease and the response timeout
        Thread.sleep(2_000);
        assertTrue(isHeld("released") && isHeld("lost"));
        proxy.refuse(false);
        assertEquals(List.of(), client.settled(PATIENCE));
        assertTrue(!isHeld("released") && !isHeld("lost"));
    }

    @Test
    void readers_read_their_lease_together() throws Exception {
        int count = 30;
        List<Guard> readers = new ArrayList<>();
        FencedLock lock = client.readWriteLock("k", LockOptions.defaults().session()).readLock();
        for (int i = 0; i < count; i++) {
            readers.add(lock.acquire());
        }
        Waiting.waitFor("a renewal of each", () -> client.statistics().renewals() >= count);
        String calls = server.infoField("commandstats", "cmdstat_lock.info").replaceFirst("calls=(\\d+),.*", "$1");
        // Those whose renewals are seen at one time: a few times, as the machine was slow to acquire them.
        assertTrue(Integer.parseInt(calls) <= count / 2, calls + " requests");
        for (Guard each : readers) {
            assertTrue(each.validFor().toMillis() > 5_000);
            assertEquals(Released.YES, each.release());
        }
    }
}
