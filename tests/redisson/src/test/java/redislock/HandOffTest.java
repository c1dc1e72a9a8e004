package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/**
 * Who waits is served when the other side lets go, at once and not at the end of a lease.
 *
 * <p>Every lease here is a minute or more, and no wait may take that long.
 */
class HandOffTest extends TwoSides {
  private static final int ROUNDS = 200;
  private static final String PARK = "LOCK.ACQUIRE k bob PX 600000 BLOCK 0";

  @Test
  void aRedissonUnlockHandsTheLockToAParkedWaiterAtOnce() {
    Delays delays = new Delays("from a Redisson unlock to the grant of a parked waiter", ROUNDS);
    Conn bob = server.conn();
    for (int i = 0; i < ROUNDS; i++) {
      alice.run(() -> lock.lock(600, TimeUnit.SECONDS));
      bob.sendLine(PARK);
      server.awaitWaiters(1);
      Future<Long> granted =
          CompletableFuture.supplyAsync(
              () -> {
                assertTrue((Long) bob.receive() > 0);
                return System.nanoTime();
              });
      long begun = alice.ask(this::unlockAndTellWhen);
      delays.add(Flow.done(granted) - begun);
      assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    }
    assertEquals(ROUNDS, server.stat("foreign_wakeups"));
    delays.report();
  }

  @Test
  void aModuleReleaseWakesARedissonWaiterAtOnce() {
    Delays delays = new Delays("from a module release to the return of Redisson's lock()", ROUNDS);
    long[] locked = new long[1];
    for (int i = 0; i < ROUNDS; i++) {
      assertTrue(conn.number("LOCK.ACQUIRE k bob PX 600000") > 0);
      Future<?> waiter =
          alice.start(
              () -> {
                lock.lock();
                locked[0] = System.nanoTime();
              });
      alice.asleep(waiter);
      long begun = System.nanoTime();
      assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
      Flow.done(waiter);
      delays.add(locked[0] - begun);
      alice.run(lock::unlock);
    }
    delays.report();
  }

  @Test
  void aReEntrantHoldIsHandedOnAtItsLastUnlockOnly() {
    alice.run(() -> lock.lock(600, TimeUnit.SECONDS));
    alice.run(() -> lock.lock(600, TimeUnit.SECONDS));
    Conn bob = server.conn();
    bob.sendLine(PARK);
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    assertEquals(1, server.stat("waiters"), "still held");
    alice.run(lock::unlock);
    assertTrue((Long) bob.receive() > 0);
  }

  @Test
  void aReEntrantHoldWakesRedissonAtItsLastReleaseOnly() {
    conn.line("LOCK.ACQUIRE k bob PX 600000");
    conn.line("LOCK.ACQUIRE k bob PX 600000");
    Future<?> waiter = alice.startLocking(lock);
    assertEquals(0L, conn.line("LOCK.RELEASE k bob"));
    alice.asleep(waiter);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    Flow.done(waiter);
    assertEquals(1, alice.ask(lock::getHoldCount));
  }

  @Test
  void waitersOfBothSidesAreAllServed() {
    Flow carol = stage.redisson(server);
    conn.line("LOCK.ACQUIRE k holder PX 600000");
    Conn bob = server.conn();
    bob.sendLine(PARK);
    server.awaitWaiters(1);
    Future<?> first = alice.startLocking(lock);
    Future<?> second = carol.startLocking(carol.lock("k"));
    assertEquals(1L, conn.line("LOCK.RELEASE k holder"));
    assertTrue((Long) bob.receive() > 0);
    assertEquals(1L, conn.line("HEXISTS k bob"), "handed on, not freed: nobody can pass");
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"));
    Until.until("one of the two", () -> first.isDone() || second.isDone());
    Flow winner = first.isDone() ? alice : carol;
    winner.run(() -> winner.lock("k").unlock());
    Flow.done(first);
    Flow.done(second);
  }

  @Test
  void aRedissonWaitThatEndsLeavesTheModuleWaitersAlone() {
    conn.line("LOCK.ACQUIRE k holder PX 600000");
    Conn bob = server.conn();
    bob.sendLine(PARK);
    server.awaitWaiters(1);
    assertEquals(false, alice.ask(() -> lock.tryLock(50, TimeUnit.MILLISECONDS)));
    conn.line("LOCK.RELEASE k holder");
    assertTrue((Long) bob.receive() > 0);
  }

  @Test
  void aModuleWaitThatEndsLeavesTheRedissonHolderAlone() {
    alice.run(() -> lock.lock(600, TimeUnit.SECONDS));
    assertNull(conn.line("LOCK.ACQUIRE k bob BLOCK 50"));
    alice.run(lock::unlock);
    assertEquals(false, lock.isLocked());
  }

  private long unlockAndTellWhen() {
    long begun = System.nanoTime();
    lock.unlock();
    return begun;
  }
}
