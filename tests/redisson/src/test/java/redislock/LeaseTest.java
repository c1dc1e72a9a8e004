package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/** Leases: either's ends for the other, and what keeps one alive does so while the other waits. */
class LeaseTest extends TwoSides {
  private static final long SHORT_MS = 300;

  /** Long enough for both sides to do something within it, on a slow machine, too. */
  private static final long LONGER_MS = 3_000;

  @Test
  void theEndOfARedissonLeaseIsTheTurnOfAParkedWaiter() {
    long begun = System.nanoTime();
    alice.run(() -> lock.lock(SHORT_MS, TimeUnit.MILLISECONDS));
    assertTrue(conn.number("LOCK.ACQUIRE k bob PX 60000 BLOCK 0") > 0);
    assertTrue(System.nanoTime() - begun >= TimeUnit.MILLISECONDS.toNanos(SHORT_MS), "not before");
    assertFalse(alice.ask(lock::isHeldByCurrentThread));
    alice.unlocksInVain(lock);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob"), "and that took nothing from bob");
  }

  @Test
  void theEndOfAModuleLeaseIsTheTurnOfARedissonWaiter() {
    long begun = System.nanoTime();
    conn.line("LOCK.ACQUIRE k bob PX " + SHORT_MS);
    alice.run(lock::lock);
    assertTrue(System.nanoTime() - begun >= TimeUnit.MILLISECONDS.toNanos(SHORT_MS), "not before");
    assertNull(conn.line("LOCK.RELEASE k bob"));
    assertEquals(0L, conn.line("LOCK.RENEW k bob"));
    assertEquals(1, alice.ask(lock::getHoldCount), "and that took nothing from alice");
  }

  @Test
  void aHandedOnLockThatNobodyReleasesComesBackToRedisson() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    Conn bob = server.conn();
    bob.sendLine("LOCK.ACQUIRE k bob PX " + SHORT_MS + " BLOCK 0");
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    assertTrue((Long) bob.receive() > 0);
    alice.run(lock::lock);
    assertNull(conn.line("LOCK.RELEASE k bob"));
  }

  @Test
  void theWatchdogRenewsWhileModuleWaitersAreParked() {
    Config config = Clients.config().setLockWatchdogTimeout(1_500);
    Clients.single(config, server.port);
    Flow watched = stage.redisson(Redisson.create(config));
    RLock kept = watched.lock("k");
    watched.run(kept::lock);
    Conn bob = server.conn();
    bob.sendLine("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    server.awaitWaiters(1);
    Leases.awaitRenewals(conn, "k");
    assertTrue(watched.ask(kept::isHeldByCurrentThread));
    assertEquals(1, server.stat("waiters"));
    watched.run(kept::unlock);
    assertTrue((Long) bob.receive() > 0);
    assertEquals(1L, conn.line("HEXISTS k bob"));
  }

  @Test
  void aSessionIsKeptWhileARedissonWaiterSleeps() {
    conn.line("CONFIG SET lock.session-lease 1500");
    Conn bob = server.conn();
    bob.line("LOCK.ACQUIRE k bob SESSION");
    Future<?> waiter = alice.startLocking(lock);
    Leases.awaitRenewals(conn, "k");
    assertFalse(waiter.isDone());
    assertEquals(1L, conn.line("HEXISTS k bob"));
    bob.close();
    Flow.done(waiter);
    assertEquals(1, alice.ask(lock::getHoldCount));
  }

  @Test
  void aRenewedModuleLeaseHoldsAgainstARedissonWaiterThatLooksAgain() {
    conn.line("LOCK.ACQUIRE k bob PX " + LONGER_MS);
    Future<?> waiter = alice.startLocking(lock);
    long tries = Scripts.calls(server);
    assertEquals(1L, conn.line("LOCK.RENEW k bob PX 60000"));
    Until.until("another try at the end of the first lease", () -> Scripts.calls(server) > tries);
    alice.asleep(waiter);
    conn.line("LOCK.RELEASE k bob");
    Flow.done(waiter);
  }

  @Test
  void theModuleRenewsWhatRedissonTook() {
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    assertEquals(1L, conn.line("LOCK.RENEW k " + alice.owner() + " PX 600000"));
    assertTrue(lock.remainTimeToLive() > 60_000);
    assertEquals(0L, conn.line("LOCK.RENEW k bob PX 1000"));
    assertTrue(lock.remainTimeToLive() > 60_000);
  }
}
