package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Redisson's forceUnlock and LOCK.BREAK: each takes the lock from the other's holder. */
class BreakTest extends TwoSides {
  @Test
  void forceUnlockTakesTheLockFromAModuleHolderForAParkedWaiter() {
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    Conn carol = park("carol");
    assertTrue(lock.forceUnlock());
    assertTrue((Long) carol.receive() > 0);
    assertNull(conn.line("LOCK.RELEASE k bob"));
    assertEquals(1L, conn.line("HEXISTS k carol"));
  }

  @Test
  void forceUnlockTakesTheLockFromAModuleHolderForARedissonWaiter() {
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    Future<?> waiter = alice.startLocking(lock);
    assertTrue(stage.redisson(server).lock("k").forceUnlock());
    Flow.done(waiter);
    assertNull(conn.line("LOCK.RELEASE k bob"));
    assertFalse(lock.isHeldByThread(0));
  }

  @Test
  void breakTakesTheLockFromARedissonHolderForAParkedWaiter() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    Conn carol = park("carol");
    assertEquals(1L, conn.line("LOCK.BREAK k"));
    assertTrue((Long) carol.receive() > 0);
    alice.unlocksInVain(lock);
    assertEquals(1L, conn.line("HEXISTS k carol"));
  }

  @Test
  void breakTakesTheLockFromARedissonHolderForARedissonWaiter() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    Flow carol = stage.redisson(server);
    Future<?> waiter = carol.startLocking(carol.lock("k"));
    assertEquals(1L, conn.line("LOCK.BREAK k"));
    Flow.done(waiter);
    alice.unlocksInVain(lock);
    assertEquals(1, carol.ask(carol.lock("k")::getHoldCount));
  }

  @Test
  void purgeSendsParkedWaitersAwayAndWakesARedissonWaiter() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    Conn bob = park("bob");
    Flow carol = stage.redisson(server);
    Future<?> waiter = carol.startLocking(carol.lock("k"));
    assertEquals(1L, conn.line("LOCK.BREAK k PURGE"));
    assertTrue(((Conn.Failure) bob.receive()).is("LOCKBROKEN"));
    Flow.done(waiter);
  }

  @Test
  void whatIsFreeIsBrokenByNeither() {
    assertFalse(lock.forceUnlock());
    assertEquals(0L, conn.line("LOCK.BREAK k"));
  }

  /** Somebody who waits in the module; returns when he is parked. */
  private Conn park(String owner) {
    Conn waiter = server.conn();
    waiter.sendLine("LOCK.ACQUIRE k " + owner + " PX 60000 BLOCK 0");
    server.awaitWaiters(1);
    return waiter;
  }
}
