package redislock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import redislock.LockClient;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** ShedLock's own tests of lock providers. */
class ShedLockKitTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static TestServer server;
    private static LockClient client;

    @BeforeAll
    static void open() {
        server = TestServer.start();
        client = LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1)).build();
    }

    @AfterAll
    static void close() {
        try {
            client.close();
        } finally {
            server.close();
        }
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new FencedLockProvider(client);
    }

    @Override
    protected void assertUnlocked(String name) {
        assertEquals(0, holders(name));
    }

    @Override
    protected void assertLocked(String name) {
        assertEquals(1, holders(name));
    }

    /**
     * The kit's lease of 2 ms may be over before the reply comes, and then the client does not take the grant. The same
     * with a longer one.
     */
    @Override
    @Test
    public void shouldNotBeAbleToExtendExpiredLock() {
        Duration lease = Duration.ofMillis(500);
        SimpleLock lock = getLockProvider().lock(lockConfig(LOCK_NAME1, lease, Duration.ZERO)).orElseThrow();
        Waiting.waitFor("the end of the lease", () -> holders(LOCK_NAME1) == 0);
        assertTrue(lock.extend(Duration.ofSeconds(10), Duration.ZERO).isEmpty());
        assertUnlocked(LOCK_NAME1);
    }

    private static int holders(String name) {
        return server.call("LOCK.INFO", "job-lock:default:" + name) == null ? 0 : 1;
    }
}
