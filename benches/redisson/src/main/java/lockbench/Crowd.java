package lockbench;

import java.util.function.ToDoubleFunction;
import redis.clients.jedis.Jedis;

/**
 * What a job's clients cost the server while all threads wait for one lock: connections, and bytes
 * of used_memory beyond those of the server without clients.
 */
record Crowd(double connections, double bytes) {
  static final Crowd NOT_MEASURED = new Crowd(0, 0);

  private static final long GATHERS_WITHIN_MS = 120_000;
  private static final long LOOKS_EVERY_MS = 5;

  /** The server without clients, apart from the connection that reads the figures. */
  static Crowd empty(Jedis connection) throws InterruptedException {
    return look(connection, info -> 1 - Counters.number(info, "connected_clients"), 0);
  }

  /** Looks at the server when this many requests wait. */
  static Crowd look(Jedis connection, ToDoubleFunction<String> waiting, int threads)
      throws InterruptedException {
    long until = System.currentTimeMillis() + GATHERS_WITHIN_MS;
    String info = connection.info("everything");
    while (waiting.applyAsDouble(info) < threads) {
      if (System.currentTimeMillis() > until) {
        throw new IllegalStateException("not all threads wait");
      }
      Thread.sleep(LOOKS_EVERY_MS);
      info = connection.info("everything");
    }
    return new Crowd(
        Counters.number(info, "connected_clients") - 1, Counters.number(info, "used_memory"));
  }

  Crowd beyond(Crowd empty) {
    return new Crowd(connections, bytes - empty.bytes);
  }
}
