package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.config.Config;

/** Redisson's RReadWriteLock and READ / WRITE on one name. */
class ReadWriteLockTest {
  private static final long SHORT_MS = 300;

  @RegisterExtension final Stage stage = new Stage();
  private Server server;
  private Conn conn;
  private Flow alice;
  private RLock reading;
  private RLock writing;

  @BeforeEach
  void begin() {
    server = stage.server();
    conn = server.conn();
    alice = stage.redisson(server);
    RReadWriteLock lock = alice.redisson.getReadWriteLock("k");
    reading = lock.readLock();
    writing = lock.writeLock();
  }

  @Test
  void readersOfBothSidesEnterTogether() {
    alice.run(() -> reading.lock(60, TimeUnit.SECONDS));
    assertTrue(acquire("bob", "READ") > 0);
    Flow carol = stage.redisson(server);
    RLock third = carol.redisson.getReadWriteLock("k").readLock();
    assertTrue(carol.ask(() -> third.tryLock()));
    assertNull(conn.line("LOCK.ACQUIRE k dave WRITE PX 60000"));
    assertFalse(carol.ask(() -> carol.redisson.getReadWriteLock("k").writeLock().tryLock()));
    alice.run(reading::unlock);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob READ"));
    assertNull(conn.line("LOCK.ACQUIRE k dave WRITE PX 60000"), "carol still reads");
    carol.run(third::unlock);
    assertEquals(0L, conn.line("EXISTS k"));
  }

  @Test
  void aRedissonWriterKeepsTheModuleOutAndHandsOn() {
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    assertNull(conn.line("LOCK.ACQUIRE k bob READ PX 60000"));
    assertNull(conn.line("LOCK.ACQUIRE k bob WRITE PX 60000"));
    Conn bob = park("bob", "WRITE", 1);
    Conn carol = park("carol", "READ", 2);
    alice.run(writing::unlock);
    assertTrue((Long) bob.receive() > 0);
    assertEquals(1, server.stat("waiters"), "carol waits for bob");
    assertEquals(1L, conn.line("LOCK.RELEASE k bob WRITE"));
    assertTrue((Long) carol.receive() > 0);
  }

  @Test
  void aModuleWriterKeepsRedissonOutAndWakesAWriter() {
    acquire("bob", "WRITE");
    assertFalse(alice.ask(() -> reading.tryLock()));
    assertFalse(alice.ask(() -> writing.tryLock()));
    Future<?> waiter = alice.startLocking(writing);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob WRITE"));
    Flow.done(waiter);
    assertTrue(alice.ask(writing::isHeldByCurrentThread));
  }

  @Test
  void aModuleWriterWakesARedissonReader() {
    acquire("bob", "WRITE");
    Future<?> waiter = alice.startLocking(reading);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob WRITE"));
    Flow.done(waiter);
    assertEquals(1, alice.ask(reading::getHoldCount));
  }

  @Test
  void theLastRedissonReaderHandsOnToAParkedWriter() {
    Flow carol = stage.redisson(server);
    RLock second = carol.redisson.getReadWriteLock("k").readLock();
    alice.run(() -> reading.lock(60, TimeUnit.SECONDS));
    carol.run(() -> second.lock(60, TimeUnit.SECONDS));
    Conn bob = park("bob", "WRITE", 1);
    alice.run(reading::unlock);
    assertEquals(1, server.stat("waiters"), "carol still reads");
    carol.run(second::unlock);
    assertTrue((Long) bob.receive() > 0);
  }

  @Test
  void theLastModuleReaderWakesARedissonWriter() {
    acquire("bob", "READ");
    acquire("carol", "READ");
    Future<?> waiter = alice.startLocking(writing);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob READ"));
    assertFalse(waiter.isDone(), "carol still reads");
    assertEquals(1L, conn.line("LOCK.RELEASE k carol READ"));
    Flow.done(waiter);
  }

  @Test
  void holdsOfReadersAndWritersAreCountedByBothSides() {
    acquire(alice.owner(), "READ");
    acquire(alice.owner(), "READ");
    assertEquals(2, alice.ask(reading::getHoldCount));
    assertTrue(alice.ask(reading::isHeldByCurrentThread));
    assertTrue(reading.isLocked());
    assertFalse(writing.isLocked());
    assertTrue(reading.remainTimeToLive() > 30_000);
    alice.run(reading::unlock);
    assertEquals(1L, conn.line("LOCK.RELEASE k " + alice.owner() + " READ"));
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    assertTrue(writing.isLocked());
    assertEquals(0L, conn.line("LOCK.RELEASE k " + alice.owner() + " WRITE"));
    assertEquals(1, alice.ask(writing::getHoldCount));
    alice.run(writing::unlock);
    assertEquals(0L, conn.line("EXISTS k"));
  }

  @Test
  void aRedissonDowngradeLetsParkedReadersEnter() {
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    alice.run(() -> reading.lock(60, TimeUnit.SECONDS));
    Conn bob = park("bob", "READ", 1);
    alice.run(writing::unlock);
    assertTrue((Long) bob.receive() > 0);
    assertEquals(1, alice.ask(reading::getHoldCount), "they read together");
  }

  @Test
  void aModuleDowngradeKeepsRedissonWritersOut() {
    acquire("bob", "WRITE");
    acquire("bob", "READ");
    Future<?> waiter = alice.startLocking(writing);
    assertEquals(1L, conn.line("LOCK.RELEASE k bob WRITE"));
    Flow carol = stage.redisson(server);
    RLock beside = carol.redisson.getReadWriteLock("k").readLock();
    assertTrue(carol.ask(() -> beside.tryLock()), "bob only reads now");
    carol.run(beside::unlock);
    assertFalse(waiter.isDone());
    assertEquals(1L, conn.line("LOCK.RELEASE k bob READ"));
    Flow.done(waiter);
  }

  @Test
  void theEndOfARedissonReadersLeaseIsTheTurnOfAParkedWriter() {
    alice.run(() -> reading.lock(SHORT_MS, TimeUnit.MILLISECONDS));
    assertTrue(conn.number("LOCK.ACQUIRE k bob WRITE PX 60000 BLOCK 0") > 0);
    alice.unlocksInVain(reading);
  }

  @Test
  void theEndOfAModuleReadersLeaseIsTheTurnOfARedissonWriter() {
    conn.line("LOCK.ACQUIRE k bob READ PX " + SHORT_MS);
    alice.run(writing::lock);
    assertNull(conn.line("LOCK.RELEASE k bob READ"));
  }

  @Test
  void theWatchdogRenewsAReaderWhileAModuleWriterIsParked() {
    Config config = Clients.config().setLockWatchdogTimeout(1_500);
    Clients.single(config, server.port);
    Flow watched = stage.redisson(Redisson.create(config));
    RLock kept = watched.redisson.getReadWriteLock("k").readLock();
    watched.run(kept::lock);
    Conn bob = park("bob", "WRITE", 1);
    Leases.awaitRenewals(conn, "k");
    assertEquals(1, server.stat("waiters"));
    assertTrue(watched.ask(kept::isHeldByCurrentThread));
    watched.run(kept::unlock);
    assertTrue((Long) bob.receive() > 0);
  }

  @Test
  void forceUnlockTakesAModuleWriterAway() {
    acquire("bob", "WRITE");
    Conn carol = park("carol", "READ", 1);
    assertTrue(writing.forceUnlock());
    assertTrue((Long) carol.receive() > 0);
    assertNull(conn.line("LOCK.RELEASE k bob WRITE"));
  }

  @Test
  void breakTakesARedissonWriterAwayAndWakesAReader() {
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    Flow carol = stage.redisson(server);
    Future<?> waiter = carol.startLocking(carol.redisson.getReadWriteLock("k").readLock());
    assertEquals(1L, conn.line("LOCK.BREAK k"));
    Flow.done(waiter);
    alice.unlocksInVain(writing);
  }

  @Test
  void oneNameIsOneKindOfLockAtATime() {
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    assertTrue(((Conn.Failure) conn.line("LOCK.ACQUIRE k bob")).is("LOCKTYPE"));
    assertTrue(alice.ask(writing::isHeldByCurrentThread));
    alice.run(writing::unlock);
    assertTrue(conn.number("LOCK.ACQUIRE k bob PX 60000") > 0);
  }

  private long acquire(String owner, String mode) {
    return conn.number("LOCK.ACQUIRE k " + owner + " " + mode + " PX 60000");
  }

  /** Somebody who waits in the module, as the last of so many; returns when he is parked. */
  private Conn park(String owner, String mode, int waiters) {
    Conn waiter = server.conn();
    waiter.sendLine("LOCK.ACQUIRE k " + owner + " " + mode + " PX 60000 BLOCK 0");
    server.awaitWaiters(waiters);
    return waiter;
  }
}
