package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/** Both sides mean the same keys and channels, whatever the name: with braces, or mapped. */
class NamesTest {
  @RegisterExtension final Stage stage = new Stage();
  private Server server;
  private Conn conn;

  @BeforeEach
  void begin() {
    server = stage.server();
    conn = server.conn();
  }

  @ParameterizedTest
  @ValueSource(strings = {"plain", "{orders}:7", "a{b}c", "a{}b", "}a{", "with a space", "größe"})
  void anExclusiveLockIsHandedBothWays(String name) {
    Flow alice = stage.redisson(server);
    handBothWays(alice, alice.lock(name), name);
  }

  @ParameterizedTest
  @ValueSource(strings = {"plain", "{orders}:7", "a{b}c", "with a space", "größe"})
  void aReadWriteLockIsHandedBothWays(String name) {
    Flow alice = stage.redisson(server);
    handBothWays(alice, alice.redisson.getReadWriteLock(name).writeLock(), name, "WRITE");
  }

  @Test
  void aMappedNameIsHandedBothWays() throws ReflectiveOperationException {
    Assumptions.assumeTrue(Clients.mapsNames(), "this version of Redisson maps no names");
    Config config = Clients.config();
    Clients.mapNames(Clients.single(config, server.port), "app:");
    Flow alice = stage.redisson(Redisson.create(config));
    handBothWays(alice, alice.lock("k"), "app:k");
    // Older ones map the name of a read-write lock twice.
    String mapped = Clients.since(3, 24) ? "app:rw" : "app:app:rw";
    handBothWays(alice, alice.redisson.getReadWriteLock("rw").writeLock(), mapped, "WRITE");
    assertEquals(0L, conn.line("EXISTS k rw"));
  }

  /** Redisson's lock and the module's name of it are one: each side waits for the other. */
  private void handBothWays(Flow alice, RLock lock, String name, String... mode) {
    Conn bob = server.conn();
    alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
    bob.send(words("LOCK.ACQUIRE", name, mode, "PX", "60000", "BLOCK", "0"));
    server.awaitWaiters(1);
    alice.run(lock::unlock);
    assertTrue((Long) bob.receive() > 0);
    Future<?> waiter = alice.startLocking(lock);
    assertEquals(1L, bob.call(words("LOCK.RELEASE", name, mode)));
    Flow.done(waiter);
    assertEquals(1, alice.ask(lock::getHoldCount));
    alice.run(lock::unlock);
  }

  private static String[] words(String command, String name, String[] mode, String... more) {
    String[] words = new String[3 + mode.length + more.length];
    words[0] = command;
    words[1] = name;
    words[2] = "bob";
    System.arraycopy(mode, 0, words, 3, mode.length);
    System.arraycopy(more, 0, words, 3 + mode.length, more.length);
    return words;
  }
}
