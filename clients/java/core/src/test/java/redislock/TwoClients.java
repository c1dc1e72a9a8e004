package redislock;

import org.junit.jupiter.api.AfterEach;
import redislock.testing.TestServer;

/** Two clients for each test, of one server, which is empty then. */
abstract class TwoClients {
    final LockClient client;
    final LockClient other;

    TwoClients(TestServer server) {
        server.call("FLUSHALL");
        client = Clients.create(server.address());
        other = Clients.create(server.address());
    }

    @AfterEach
    final void closeClients() {
        client.close();
        other.close();
    }
}
