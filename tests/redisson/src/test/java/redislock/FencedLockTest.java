package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.api.RFencedLock;

/** Redisson's RFencedLock and the module's tokens: one rising sequence where the counter exists. */
class FencedLockTest {
  private static final int ROUNDS = 20;

  @RegisterExtension final Stage stage = new Stage();
  private Server server;
  private Conn conn;
  private Flow alice;
  private RFencedLock lock;

  @BeforeEach
  void begin() {
    server = stage.server();
    conn = server.conn();
    alice = stage.redisson(server);
    lock = alice.redisson.getFencedLock("k");
  }

  @Test
  void tokensOfBothSidesRiseTogether() {
    long last = 0;
    for (int i = 0; i < ROUNDS; i++) {
      long theirs = lockAndGetToken();
      assertTrue(theirs > last, theirs + " after " + last);
      alice.run(lock::unlock);
      long ours = conn.number("LOCK.ACQUIRE k bob PX 60000");
      assertTrue(ours > theirs, ours + " after " + theirs);
      assertEquals(1L, conn.line("LOCK.RELEASE k bob TOKEN " + ours));
      last = ours;
    }
  }

  @Test
  void theModuleRisesAboveAnExistingCounterAndWritesItBack() {
    long ahead = System.currentTimeMillis() * 1_000 + 3_600_000_000L;
    conn.call("SET", Keys.fencedCounter("k"), "" + ahead);
    long ours = conn.number("LOCK.ACQUIRE k bob PX 60000");
    assertTrue(ours > ahead);
    assertEquals("" + ours, conn.call("GET", Keys.fencedCounter("k")));
    conn.line("LOCK.RELEASE k bob");
    assertEquals(ours + 1, lockAndGetToken());
  }

  @Test
  void aLockOfTheModuleAloneGetsNoCounter() {
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    conn.line("LOCK.RELEASE k bob");
    assertEquals(0L, conn.call("EXISTS", Keys.fencedCounter("k")));
    assertEquals(1L, lockAndGetToken(), "Redisson then counts its own sequence");
    alice.run(lock::unlock);
    long ours = conn.number("LOCK.ACQUIRE k bob PX 60000");
    conn.line("LOCK.RELEASE k bob");
    assertEquals(ours + 1, lockAndGetToken(), "and from then on both rise together");
  }

  @Test
  void aParkedWaiterOfAFencedLockGetsAHigherToken() {
    long theirs = lockAndGetToken();
    Conn bob = server.conn();
    bob.sendLine("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    long ours = (Long) bob.receive();
    assertTrue(ours > theirs);
    assertEquals("" + ours, conn.call("GET", Keys.fencedCounter("k")));
  }

  @Test
  void aRedissonWaiterOfAFencedLockGetsAHigherToken() {
    long first = lockAndGetToken();
    alice.run(lock::unlock);
    long ours = conn.number("LOCK.ACQUIRE k bob PX 60000");
    assertTrue(ours > first);
    // Not lockAndGetToken(), which before 3.28 may miss the message while it begins to wait.
    Future<?> waiter = alice.startLocking(lock);
    conn.line("LOCK.RELEASE k bob");
    Flow.done(waiter);
    long theirs = lock.getToken();
    assertTrue(theirs > ours, theirs + " after " + ours);
  }

  @Test
  void holdCountsAreReadByBothSides() {
    lockAndGetToken();
    lockAndGetToken();
    Object holders = Conn.field(conn.line("LOCK.INFO k"), "holders");
    assertEquals(2L, Conn.field(((List<?>) holders).get(0), "holds"));
    conn.line("LOCK.RELEASE k " + alice.owner());
    assertEquals(1, alice.ask(lock::getHoldCount));
  }

  private long lockAndGetToken() {
    return alice.ask(lock::lockAndGetToken);
  }
}
