package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.redisson.api.RLock;

/** Re-entrancy and hold counts: each side reads, and counts on from, what the other took. */
class HoldCountTest extends TwoSides {
  @Test
  void theModuleReadsTheHoldsThatRedissonTook() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    List<?> refused = (List<?>) conn.line("LOCK.ACQUIRE k bob WITHHOLDER");
    assertNull(refused.get(0));
    assertEquals(alice.owner(), refused.get(1));
    assertEquals(2L, refused.get(2));
    assertInLease((Long) refused.get(3));
    List<?> holders = (List<?>) Conn.field(conn.line("LOCK.INFO k"), "holders");
    assertEquals(1, holders.size());
    assertEquals(alice.owner(), Conn.field(holders.get(0), "owner"));
    assertEquals(2L, Conn.field(holders.get(0), "holds"));
    assertNull(Conn.field(holders.get(0), "token"), "only the module gives tokens");
    assertInLease((Long) Conn.field(holders.get(0), "pttl"));
    assertNull(conn.line("LOCK.RELEASE k bob"));
  }

  @Test
  void redissonReadsTheHoldsThatTheModuleTook() {
    conn.line("LOCK.ACQUIRE k " + alice.owner() + " PX 60000");
    conn.line("LOCK.ACQUIRE k " + alice.owner() + " PX 60000");
    assertEquals(2, alice.ask(lock::getHoldCount));
    assertTrue(alice.ask(lock::isLocked));
    assertTrue(alice.ask(lock::isHeldByCurrentThread));
    assertTrue(lock.isHeldByThread(alice.threadId()));
    assertInLease(lock.remainTimeToLive());
    Flow sibling = stage.another(alice.redisson);
    assertEquals(0, sibling.ask(lock::getHoldCount));
    assertTrue(sibling.ask(lock::isLocked));
    assertFalse(sibling.ask(lock::isHeldByCurrentThread));
    assertFalse(lock.isHeldByThread(sibling.threadId()));
    sibling.unlocksInVain(lock);
    assertEquals(2, alice.ask(lock::getHoldCount), "nothing came of that");
  }

  @Test
  void theModuleReEntersAndReleasesWhatRedissonTook() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    assertTrue(conn.number("LOCK.ACQUIRE k " + alice.owner() + " PX 60000") > 0);
    assertEquals(2, alice.ask(lock::getHoldCount));
    assertEquals(0L, conn.line("LOCK.RELEASE k " + alice.owner()));
    assertEquals(1, alice.ask(lock::getHoldCount));
    assertEquals(1L, conn.line("LOCK.RELEASE k " + alice.owner()));
    assertFree();
    alice.unlocksInVain(lock);
  }

  @Test
  void redissonReEntersAndUnlocksWhatTheModuleTook() {
    long token = conn.number("LOCK.ACQUIRE k " + alice.owner() + " PX 60000");
    alice.run(lock::lock);
    assertEquals(2, alice.ask(lock::getHoldCount));
    assertEquals(token, conn.number("LOCK.ACQUIRE k " + alice.owner() + " PX 60000"), "one grant");
    alice.run(lock::unlock);
    alice.run(lock::unlock);
    assertEquals(1, alice.ask(lock::getHoldCount));
    alice.run(lock::unlock);
    assertFree();
    assertNull(conn.line("LOCK.RELEASE k " + alice.owner()));
  }

  @Test
  void eitherIsRefusedWhatTheOtherHolds() {
    RLock mine = stage.redisson(server).lock("k");
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    assertFalse(alice.ask(() -> lock.tryLock()));
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    assertTrue(alice.ask(() -> lock.tryLock()));
    assertNull(conn.line("LOCK.ACQUIRE k bob PX 60000"));
    assertFalse(mine.tryLock());
    alice.run(lock::unlock);
    assertTrue(conn.number("LOCK.ACQUIRE k bob PX 60000") > 0);
  }

  private void assertInLease(long left) {
    assertTrue(left > 30_000 && left <= 60_000, "of a minute's lease: " + left);
  }

  private void assertFree() {
    assertFalse(lock.isLocked());
    assertEquals(0, alice.ask(lock::getHoldCount));
    assertEquals(-2, lock.remainTimeToLive());
    assertNull(conn.line("LOCK.INFO k"));
    assertEquals(0L, conn.line("EXISTS k"), "nor is a token left");
  }
}
