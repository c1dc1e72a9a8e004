package lockbench;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import redis.clients.jedis.Jedis;

/**
 * One job on one server: all workers started, warmed up, measured, stopped, and their counts
 * checked.
 */
final class Load {
  private static final long STARTS_WITHIN_S = 60;
  private static final long STOPS_WITHIN_MS = 90_000;

  /** What a lock guards. A lost update is a lock that two had. */
  static final class Guarded {
    volatile long count;
  }

  final Locks locks;
  final CountDownLatch connected;
  volatile boolean measuring;
  volatile boolean stop;

  private final Job job;
  private final Guarded[] guarded;

  private Load(Locks locks, Job job) {
    this.locks = locks;
    this.job = job;
    connected = new CountDownLatch(job.threads());
    guarded = new Guarded[job.oneLock() ? 1 : job.threads()];
    Arrays.setAll(guarded, lock -> new Guarded());
  }

  Guarded guardedBy(int thread) {
    return guarded[job.oneLock() ? 0 : thread];
  }

  static Sample run(Way way, Server server, Job job, Effort effort) throws InterruptedException {
    try (Locks locks = way.connect(server, job);
        Jedis connection = server.connect()) {
      return new Load(locks, job).run(way, connection, effort);
    }
  }

  private Sample run(Way way, Jedis connection, Effort effort) throws InterruptedException {
    List<Worker> workers =
        IntStream.range(0, job.threads()).mapToObj(n -> new Worker(this, n)).toList();
    workers.forEach(Worker::start);
    if (!connected.await(STARTS_WITHIN_S, TimeUnit.SECONDS)) {
      throw new IllegalStateException("not all workers are connected");
    }
    warmUp(workers, effort);
    Counters before = Counters.read(connection);
    long began = System.nanoTime();
    measuring = true;
    Thread.sleep(effort.measuredMs());
    measuring = false;
    double seconds = (System.nanoTime() - began) / 1e9;
    Counters spent = Counters.read(connection).since(before);
    stop = true;
    join(workers);
    check(workers);
    way.check(spent);
    long[] waits = workers.stream().map(Worker::waits).flatMapToLong(LongStream::of).toArray();
    return Sample.of(waits, seconds, spent);
  }

  /** For a while, and until as many pairs were made as there are workers. */
  private void warmUp(List<Worker> workers, Effort effort) throws InterruptedException {
    long until = System.currentTimeMillis() + STARTS_WITHIN_S * 1_000;
    do {
      Thread.sleep(effort.warmUpMs());
    } while (!stop && pairs(workers) < workers.size() && System.currentTimeMillis() < until);
  }

  private static long pairs(List<Worker> workers) {
    return workers.stream().mapToLong(Worker::pairs).sum();
  }

  private static void join(List<Worker> workers) throws InterruptedException {
    long until = System.currentTimeMillis() + STOPS_WITHIN_MS;
    for (Worker worker : workers) {
      worker.join(Math.max(1, until - System.currentTimeMillis()));
      if (worker.isAlive()) {
        throw new IllegalStateException(worker.getName() + " does not end");
      }
    }
  }

  private void check(List<Worker> workers) {
    for (Worker worker : workers) {
      if (worker.failure() != null) {
        throw new IllegalStateException(worker.getName() + " failed", worker.failure());
      }
    }
    long pairs = pairs(workers);
    long counted = Arrays.stream(guarded).mapToLong(lock -> lock.count).sum();
    if (pairs != counted) {
      throw new IllegalStateException(pairs + " pairs, but counted " + counted);
    }
  }
}
