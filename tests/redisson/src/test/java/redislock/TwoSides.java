package redislock;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.api.RLock;

/** What most tests begin with: a server, a connection of the module's, a Redisson client, one lock. */
abstract class TwoSides {
  @RegisterExtension final Stage stage = new Stage();
  Server server;
  Conn conn;
  Flow alice;
  RLock lock;

  @BeforeEach
  void begin() {
    server = stage.server();
    conn = server.conn();
    alice = stage.redisson(server);
    lock = lockOf(alice);
  }

  /** The lock k; some tests want another kind. */
  RLock lockOf(Flow flow) {
    return flow.lock("k");
  }
}
