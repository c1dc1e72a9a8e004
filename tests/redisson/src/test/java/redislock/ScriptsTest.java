package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/**
 * The setting lock.redisson-scripts: the module knows the scripts that this version of Redisson
 * really sends, and runs them itself when it is switched on, and only then.
 */
class ScriptsTest {
  @RegisterExtension final Stage stage = new Stage();
  private Server server;
  private Conn conn;
  private Flow alice;
  private RLock lock;

  @BeforeEach
  void begin() {
    server = stage.server();
    conn = server.conn();
    Config config = Clients.config().setLockWatchdogTimeout(900);
    Clients.single(config, server.port);
    alice = stage.redisson(Redisson.create(config));
    lock = alice.lock("k");
  }

  @Test
  void everyScriptOfAnExclusiveLockRunsNativelyWhenSwitchedOn() {
    switchTo("yes");
    // At its first script a new client may ask the server, by another script, what it is.
    alice.run(lock::lock);
    alice.run(lock::unlock);
    long byLua = Scripts.byLua(server);
    runsNatively("to acquire", () -> alice.run(() -> lock.lock(60, TimeUnit.SECONDS)));
    runsNatively("to re-enter", () -> alice.run(() -> lock.lock(60, TimeUnit.SECONDS)));
    Flow bob = stage.another(alice.redisson);
    runsNatively("to be refused", () -> assertFalse(bob.ask(() -> lock.tryLock())));
    runsNatively("to unlock once", () -> alice.run(lock::unlock));
    runsNatively("to unlock in vain", () -> bob.unlocksInVain(lock));
    runsNatively("to free", () -> alice.run(lock::unlock));
    assertFalse(lock.isLocked());
    runsNatively("to be watched", () -> alice.run(lock::lock));
    runsNatively("to renew", () -> Leases.awaitRenewals(conn, "k"));
    runsNatively("to force", () -> assertTrue(lock.forceUnlock()));
    runsNatively("to force in vain", () -> assertFalse(lock.forceUnlock()));
    assertEquals(0, server.stat("redisson_lua"));
    assertEquals(byLua, Scripts.byLua(server));
  }

  @Test
  void theScriptsOfAReadWriteLockRunNativelyWhenSwitchedOn() {
    switchTo("yes");
    RLock reading = alice.redisson.getReadWriteLock("rw").readLock();
    RLock writing = alice.redisson.getReadWriteLock("rw").writeLock();
    Flow bob = stage.another(alice.redisson);
    for (RLock mine : List.of(reading, writing)) {
      readWrite("to acquire", () -> alice.run(() -> mine.lock(60, TimeUnit.SECONDS)));
      readWrite("to re-enter", () -> alice.run(() -> mine.lock(60, TimeUnit.SECONDS)));
      readWrite("to be refused", () -> assertFalse(bob.ask(() -> writing.tryLock())));
      readWrite("to unlock once", () -> alice.run(mine::unlock));
      readWrite("to unlock in vain", () -> bob.unlocksInVain(mine));
      readWrite("to free", () -> alice.run(mine::unlock));
      alice.run(() -> mine.lock(60, TimeUnit.SECONDS));
      readWrite("to force", () -> assertTrue(mine.forceUnlock()));
    }
    assertEquals(0, server.stat("redisson_lua"));
  }

  @Test
  void theServerRunsThemWhenSwitchedOff() {
    switchTo("no");
    alice.run(lock::lock);
    alice.run(lock::unlock);
    assertEquals(0, server.stat("redisson_rlock"));
    assertTrue(Scripts.byLua(server) > 0);
  }

  @Test
  void theSwitchMayBeTurnedWhileALockIsHeld() {
    for (String setting : new String[] {"yes", "no", "yes"}) {
      alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
      switchTo(setting);
      alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
      assertEquals(2, alice.ask(lock::getHoldCount));
      alice.run(lock::unlock);
      alice.run(lock::unlock);
      assertFalse(lock.isLocked());
    }
  }

  private void switchTo(String setting) {
    assertEquals("OK", conn.line("CONFIG SET lock.redisson-scripts " + setting));
  }

  private void readWrite(String what, Runnable step) {
    Scripts.runsNatively(server, "read_write", what, step);
  }

  private void runsNatively(String what, Runnable step) {
    Scripts.runsNatively(server, "rlock", what, step);
  }
}
