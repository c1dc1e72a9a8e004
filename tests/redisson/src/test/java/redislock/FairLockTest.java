package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.redisson.api.RLock;

/**
 * Names of RFairLock used by the module: its hash is that of RLock, so both sides exclude each
 * other, and its queue is its own. A fair waiter listens on a channel of its own, so a module
 * release does not wake it: it looks again when the lease that it was told of is over.
 */
class FairLockTest extends TwoSides {
  /** Long enough for both sides to do something within it, on a slow machine, too. */
  private static final long LONGER_MS = 3_000;

  @Override
  RLock lockOf(Flow flow) {
    return flow.redisson.getFairLock("k");
  }

  @Test
  void aFairHolderIsSeenAndHandsOnToAParkedWaiter() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    assertNull(conn.line("LOCK.ACQUIRE k bob PX 60000"));
    Object holders = Conn.field(conn.line("LOCK.INFO k"), "holders");
    assertEquals(alice.owner(), Conn.field(((List<?>) holders).get(0), "owner"));
    Conn bob = server.conn();
    bob.sendLine("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    assertTrue((Long) bob.receive() > 0);
    assertFalse(alice.ask(() -> lock.tryLock()));
  }

  @Test
  void aModuleHolderIsSeenByFairLocksAndTheirQueueIsLeftAlone() {
    conn.line("LOCK.ACQUIRE k bob PX " + LONGER_MS);
    assertFalse(alice.ask(() -> lock.tryLock()));
    Future<?> waiter = alice.startLocking(lock);
    Object queue = conn.call("LRANGE", Keys.fairQueue("k"), "0", "-1");
    assertEquals(List.of(alice.owner()), queue);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    assertEquals(queue, conn.call("LRANGE", Keys.fairQueue("k"), "0", "-1"));
    assertEquals(1L, conn.call("ZCARD", Keys.fairTimeouts("k")));
    Flow.done(waiter);
    assertEquals(1, alice.ask(lock::getHoldCount));
    assertEquals(0L, conn.call("EXISTS", Keys.fairQueue("k")));
    assertNull(conn.line("LOCK.RELEASE k bob"));
  }

  @Test
  void holdsOfAFairLockAreCountedByBothSides() {
    conn.line("LOCK.ACQUIRE k " + alice.owner() + " PX 60000");
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    assertEquals(2, alice.ask(lock::getHoldCount));
    assertEquals(0L, conn.line("LOCK.RELEASE k " + alice.owner()));
    alice.run(lock::unlock);
    assertFalse(lock.isLocked());
  }

  @Test
  void theKeysBesideAFairLockAreNoLocks() {
    conn.line("LOCK.ACQUIRE k bob PX 60000");
    Future<?> waiter = alice.startLocking(lock);
    for (String key : List.of(Keys.fairQueue("k"), Keys.fairTimeouts("k"))) {
      Object before = conn.call("DUMP", key);
      assertTrue(((Conn.Failure) conn.call("LOCK.ACQUIRE", key, "bob")).is("WRONGTYPE"));
      assertTrue(((Conn.Failure) conn.call("LOCK.RELEASE", key, "bob")).is("WRONGTYPE"));
      assertTrue(((Conn.Failure) conn.call("LOCK.BREAK", key)).is("WRONGTYPE"));
      assertEquals(before, conn.call("DUMP", key));
    }
    assertTrue(lock.forceUnlock(), "which wakes the head of the fair queue");
    Flow.done(waiter);
    assertEquals(1, alice.ask(lock::getHoldCount));
  }
}
