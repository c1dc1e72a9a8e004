package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.api.DeletedObjectListener;
import org.redisson.api.ExpiredObjectListener;
import org.redisson.api.RLock;
import org.redisson.api.RObject;

/**
 * Redisson's listeners on a lock live on the server's key events: del when it is freed, expired.
 */
class ListenerTest {
  private static final int ROUNDS = 10;

  @RegisterExtension final Stage stage = new Stage();
  private final CompletableFuture<String> deleted = new CompletableFuture<>();
  private final CompletableFuture<String> expired = new CompletableFuture<>();
  private Server server;
  private Conn conn;
  private Flow alice;
  private RLock lock;

  @BeforeEach
  void begin() {
    server = stage.server("--notify-keyspace-events", "Egx");
    conn = server.conn();
    alice = stage.redisson(server);
    lock = alice.lock("k");
    // Versions before 3.37 have no listeners in the interface RLock, but in its class.
    RObject observed = (RObject) lock;
    observed.addListener((DeletedObjectListener) deleted::complete);
    observed.addListener((ExpiredObjectListener) expired::complete);
  }

  @Test
  void aModuleReleaseIsSeenAsDel() {
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    assertEquals("k", Flow.done(deleted));
  }

  @Test
  void aBrokenLockIsSeenAsDel() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    assertEquals(1L, conn.line("LOCK.BREAK k"));
    assertEquals("k", Flow.done(deleted));
  }

  @Test
  void aRedissonUnlockIsSeenAsDelBesideAParkedWaiter() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    Conn bob = server.conn();
    bob.sendLine("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    assertEquals("k", Flow.done(deleted));
    assertTrue((Long) bob.receive() > 0);
  }

  @Test
  void theEndOfAModuleLeaseIsSeenAsExpired() {
    conn.line("LOCK.ACQUIRE k bob PX 50");
    assertEquals("k", Flow.done(expired));
  }

  @Test
  void theEndOfARedissonLeaseIsSeenAsExpiredBesideAParkedWaiter() {
    AtomicInteger ends = new AtomicInteger();
    ((RObject) lock).addListener((ExpiredObjectListener) name -> ends.incrementAndGet());
    for (int i = 1; i <= ROUNDS; i++) {
      int expected = i;
      alice.run(() -> lock.lock(20, TimeUnit.MILLISECONDS));
      assertTrue(conn.number("LOCK.ACQUIRE k bob PX 60000 BLOCK 0") > 0);
      Until.until("news of the end of a lease", () -> ends.get() == expected);
      assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    }
  }
}
