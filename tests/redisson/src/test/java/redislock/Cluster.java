package redislock;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/** Three primaries of a cluster, each with a third of the slots. */
final class Cluster implements AutoCloseable {
  private static final int NODES = 3;
  private static final int SLOTS = 16_384;

  final List<Server> nodes = new ArrayList<>();

  private Cluster() {}

  /** Starts them and waits until all of them see every slot served. */
  static Cluster start(String... options) {
    Cluster cluster = new Cluster();
    try {
      cluster.addNodes(options);
      return cluster;
    } catch (IOException e) {
      cluster.close();
      throw new UncheckedIOException(e);
    } catch (AssertionError e) {
      cluster.close();
      throw e;
    }
  }

  /** The node that serves a key. */
  Server nodeOf(String key) {
    long slot = (Long) nodes.get(0).conn().call("CLUSTER", "KEYSLOT", key);
    return nodes.get((int) (slot * NODES / SLOTS));
  }

  @Override
  public void close() {
    nodes.forEach(Server::close);
  }

  private void addNodes(String... options) throws IOException {
    for (int i = 0; i < NODES; i++) {
      String bus = "" + Server.freePort();
      List<String> all = new ArrayList<>(List.of(options));
      all.addAll(List.of("--cluster-enabled", "yes", "--cluster-port", bus));
      Server node = Server.start(all.toArray(String[]::new));
      nodes.add(node);
      try (Conn conn = new Conn(node.port)) {
        conn.line("CLUSTER SET-CONFIG-EPOCH " + (i + 1));
        conn.line("CLUSTER ADDSLOTSRANGE " + first(i) + " " + (first(i + 1) - 1));
      }
      try (Conn conn = new Conn(nodes.get(0).port)) {
        conn.line("CLUSTER MEET 127.0.0.1 " + node.port + " " + bus);
      }
    }
    nodes.forEach(node -> Until.until("a whole cluster", () -> isWhole(node)));
  }

  /** The first slot of a node: as many keys' slots times nodes by slots, rounded down, give it. */
  private static int first(int node) {
    return (SLOTS * node + NODES - 1) / NODES;
  }

  private static boolean isWhole(Server node) {
    try (Conn conn = new Conn(node.port)) {
      String info = (String) conn.line("CLUSTER INFO");
      return info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:" + SLOTS);
    }
  }
}
