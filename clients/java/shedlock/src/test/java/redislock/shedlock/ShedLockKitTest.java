package redislock.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import redislock.LockClient;
import redislock.testing.TestServer;

/** ShedLock's own tests of lock providers. */
class ShedLockKitTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static TestServer server;
    private static LockClient client;

    @BeforeAll
    static void open() {
        server = TestServer.start();
        client = LockClient.create(server.address());
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

    private static int holders(String name) {
        return server.call("LOCK.INFO", "job-lock:default:" + name) == null ? 0 : 1;
    }
}
