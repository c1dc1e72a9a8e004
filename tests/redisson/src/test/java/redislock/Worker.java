package redislock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RedissonClient;

/**
 * A process that increments the counter under the contended lock, so often in each of its threads.
 *
 * <p>Arguments: the server's port, the sides its owners are on (redisson, module, or both in turn),
 * threads, rounds. It says "ready", begins when told to, and says "done". Reading and writing the
 * counter are two requests, so two holders at a time would lose one's increment; besides, whoever
 * is not alone under the lock says so.
 */
final class Worker {
  /** What is counted under the lock. */
  static final String COUNTER = "counter";

  /** How many are under the lock now. */
  static final String INSIDE = "inside";

  /** Who was, in order: R for Redisson, M for the module. */
  static final String GRANTS = "grants";

  private final int port;
  private final String sides;
  private final int rounds;
  private final RedissonClient redisson;

  private Worker(int port, String sides, int rounds) {
    this.port = port;
    this.sides = sides;
    this.rounds = rounds;
    this.redisson = sides.equals("module") ? null : Clients.of(port);
  }

  public static void main(String[] args) throws Exception {
    Worker worker = new Worker(Integer.parseInt(args[0]), args[1], Integer.parseInt(args[3]));
    int threads = Integer.parseInt(args[2]);
    System.out.println("ready");
    if (System.in.read() < 0) {
      System.exit(1);
    }
    endWithParent();
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Future<?>> all = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      int first = i;
      all.add(pool.submit(() -> worker.play(first)));
    }
    for (Future<?> one : all) {
      one.get();
    }
    System.out.println("done");
    System.exit(0);
  }

  /** Nobody is left behind when the test ends early. */
  private static void endWithParent() {
    Thread watch =
        new Thread(
            () -> {
              try {
                while (System.in.read() >= 0) {}
              } catch (java.io.IOException e) {
                // The parent has gone: the same as the end of the stream.
              }
              System.exit(1);
            });
    watch.setDaemon(true);
    watch.start();
  }

  /**
   * One thread's rounds. With both sides its owners take turns, every second one on the other side.
   */
  private Void play(int first) throws InterruptedException {
    try (Conn data = new Conn(port);
        Conn conn = new Conn(port)) {
      String owner = ProcessHandle.current().pid() + ":" + Thread.currentThread().getName();
      Side module = Side.module(conn, owner);
      Side theirs = redisson == null ? module : Side.redisson(redisson.getLock(Side.LOCK));
      for (int i = 0; i < rounds; i++) {
        boolean byRedisson =
            sides.equals("redisson") || sides.equals("both") && (i + first) % 2 == 0;
        Side side = byRedisson ? theirs : module;
        side.enter();
        increment(data, byRedisson ? "R" : "M");
        side.leave();
      }
    }
    return null;
  }

  private static void increment(Conn data, String side) throws InterruptedException {
    data.send("INCR", INSIDE);
    data.send("GET", COUNTER);
    Object inside = data.receive();
    String count = (String) data.receive();
    if (!Long.valueOf(1).equals(inside)) {
      throw new AssertionError(inside + " owners at a time");
    }
    long next = (count == null ? 0 : Long.parseLong(count)) + 1;
    data.send("SET", COUNTER, "" + next);
    data.send("RPUSH", GRANTS, side);
    data.send("DECR", INSIDE);
    data.receive();
    data.receive();
    data.receive();
  }
}
