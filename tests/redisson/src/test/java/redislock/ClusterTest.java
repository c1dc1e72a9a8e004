package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.redisson.api.RLock;

/**
 * A cluster: Redisson listens on a shard channel since 3.22 (SSUBSCRIBE), before on a plain one,
 * and a module release reaches both.
 */
class ClusterTest {
  private static final List<String> NAMES = List.of("a", "b", "c", "d", "{orders}:7", "x{y}z");

  @RegisterExtension final Stage stage = new Stage();
  private Cluster cluster;
  private Flow alice;

  @BeforeEach
  void begin() {
    cluster = stage.add(Cluster.start());
    alice = stage.redisson(Clients.ofCluster(cluster.nodes.get(0).port));
  }

  @Test
  void locksAreHandedBothWaysOnEveryNode() {
    for (String name : NAMES) {
      RLock lock = alice.lock(name);
      Server node = cluster.nodeOf(name);
      Conn bob = node.conn();
      alice.run(() -> lock.lock(60, TimeUnit.SECONDS));
      bob.line("LOCK.INFO " + name);
      bob.sendLine("LOCK.ACQUIRE " + name + " bob PX 60000 BLOCK 0");
      node.awaitWaiters(1);
      alice.run(lock::unlock);
      assertTrue((Long) bob.receive() > 0);
      Future<?> waiter = alice.startLocking(lock);
      assertEquals(1L, bob.line("LOCK.RELEASE " + name + " bob"));
      Flow.done(waiter);
      alice.run(lock::unlock);
    }
    long used = cluster.nodes.stream().filter(node -> node.stat("grants") > 0).count();
    assertEquals(cluster.nodes.size(), used, "the names are on all nodes");
  }

  @Test
  void readWriteLocksAreHandedBothWays() {
    RLock writing = alice.redisson.getReadWriteLock("k").writeLock();
    RLock reading = alice.redisson.getReadWriteLock("k").readLock();
    Server node = cluster.nodeOf("k");
    Conn bob = node.conn();
    alice.run(() -> writing.lock(60, TimeUnit.SECONDS));
    bob.sendLine("LOCK.ACQUIRE k bob WRITE PX 60000 BLOCK 0");
    node.awaitWaiters(1);
    alice.run(writing::unlock);
    assertTrue((Long) bob.receive() > 0);
    Future<?> waiter = alice.startLocking(reading);
    assertEquals(1L, bob.line("LOCK.RELEASE k bob WRITE"));
    Flow.done(waiter);
    alice.run(reading::unlock);
  }

  @Test
  void theChannelIsAShardChannelSinceRedisson322() {
    Conn bob = cluster.nodeOf("k").conn();
    bob.line("LOCK.ACQUIRE k bob PX 60000");
    Future<?> waiter = alice.startLocking(alice.lock("k"));
    boolean sharded = Clients.since(3, 22);
    assertEquals(sharded ? 1 : 0, listeners("SHARDNUMSUB"));
    assertEquals(sharded ? 0 : 1, listeners("NUMSUB"));
    bob.line("LOCK.RELEASE k bob");
    Flow.done(waiter);
  }

  @Test
  void aModuleReleaseReachesPlainAndShardChannels() {
    Conn bob = cluster.nodeOf("k").conn();
    Conn sharded = cluster.nodeOf("k").conn();
    Conn plain = cluster.nodes.get(0).conn();
    assertFalse(sharded.call("SSUBSCRIBE", Keys.channel("k")) instanceof Conn.Failure);
    plain.call("SUBSCRIBE", Keys.channel("k"));
    bob.line("LOCK.ACQUIRE k bob PX 60000");
    bob.line("LOCK.RELEASE k bob");
    assertEquals(List.of("smessage", Keys.channel("k"), "0"), sharded.receive());
    assertEquals(List.of("message", Keys.channel("k"), "0"), plain.receive());
  }

  /** How many listen on the lock's channel, on all nodes together. */
  private long listeners(String kind) {
    return cluster.nodes.stream()
        .mapToLong(node -> Keys.listeners(node.conn(), kind, Keys.channel("k")))
        .sum();
  }
}
