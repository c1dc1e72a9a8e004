package lockbench;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.redisson.client.RedisException;
import redis.clients.jedis.Jedis;

/**
 * One job on one server: all workers started, warmed up, measured, stopped, and their counts
 * checked.
 */
final class Load {
  private static final long STARTS_WITHIN_S = 60;
  /** Of a crowd. Thousands of threads that run at a time keep those of the client libraries waiting. */
  private static final int START_TOGETHER = 250;

  private static final long STOPS_WITHIN_MS = 240_000;
  private static final long JOINS_FOR_MS = 100;

  /** Threads in lock() end with an exception when the client is closed, at the end of a lease at the latest. */
  private static final long FAILED_ENDS_WITHIN_MS = 60_000;

  /** What a lock guards. A lost update is a lock that two had. */
  static final class Guarded {
    volatile long count;
    private volatile long token = Locks.Lock.NO_TOKEN;

    /** Fails when the token of a new holder is not above that of the one before. */
    void enter(long next) {
      if (next != Locks.Lock.NO_TOKEN && next <= token) {
        throw new IllegalStateException("token " + next + " after " + token);
      }
      token = next;
    }
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

  /** A thread's client library failed, so there are no figures. */
  static final class ClientFailed extends IllegalStateException {
    private static final long serialVersionUID = 1;

    private final transient List<Worker> workers;

    ClientFailed(Worker worker, List<Worker> workers) {
      super(worker.getName() + " failed", worker.failure());
      this.workers = workers;
    }

    /** Waits for the other workers, after the client was closed: the next job has the core alone. */
    void end() throws InterruptedException {
      long until = System.currentTimeMillis() + FAILED_ENDS_WITHIN_MS;
      for (Worker worker : workers) {
        worker.join(Math.max(1, until - System.currentTimeMillis()));
      }
    }
  }

  static Sample run(Way way, Server server, Job job, Effort effort) throws InterruptedException {
    try (Jedis connection = server.connect()) {
      Crowd empty = job.crowd() ? Crowd.empty(connection) : Crowd.NOT_MEASURED;
      try (Locks locks = way.connect(server, job)) {
        return new Load(locks, job).run(way, connection, effort, empty);
      } catch (ClientFailed failed) {
        failed.end();
        throw failed;
      }
    }
  }

  private Sample run(Way way, Jedis connection, Effort effort, Crowd empty)
      throws InterruptedException {
    List<Worker> workers =
        IntStream.range(0, job.threads()).mapToObj(n -> new Worker(this, n)).toList();
    Crowd crowd = gather(way, connection, workers);
    warmUp(workers, effort);
    Counters before = Counters.read(connection);
    long began = System.nanoTime();
    measuring = true;
    Thread.sleep(effort.measuredMs(job));
    measuring = false;
    double seconds = (System.nanoTime() - began) / 1e9;
    Counters spent = Counters.read(connection).since(before);
    stop = true;
    join(workers);
    check(workers);
    way.check(spent);
    long[] waits = workers.stream().map(Worker::waits).flatMapToLong(LongStream::of).toArray();
    double served = workers.stream().filter(worker -> worker.waits().length > 0).count();
    return Sample.of(waits, seconds, spent)
        .with(100 * served / workers.size(), crowd.beyond(empty));
  }

  /** Starts the workers; for a crowd while the lock is held, and looks at the server when all wait. */
  private Crowd gather(Way way, Jedis connection, List<Worker> workers)
      throws InterruptedException {
    if (!job.crowd()) {
      workers.forEach(Worker::start);
      if (!connected.await(STARTS_WITHIN_S, TimeUnit.SECONDS)) {
        throw new IllegalStateException("not all workers are connected");
      }
      return Crowd.NOT_MEASURED;
    }
    try (Locks.Lock gate = locks.lockOf(job.threads())) {
      gate.lock();
      String before = connection.info("everything");
      Crowd crowd = Crowd.NOT_MEASURED;
      for (int from = 0; from < workers.size(); from += START_TOGETHER) {
        int to = Math.min(from + START_TOGETHER, workers.size());
        workers.subList(from, to).forEach(Worker::start);
        crowd = Crowd.look(connection, info -> way.waiting(info, before), to);
      }
      gate.unlock();
      return crowd;
    }
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

  /** Waits until the workers have ended, or one of them has failed. */
  private static void join(List<Worker> workers) throws InterruptedException {
    long until = System.currentTimeMillis() + STOPS_WITHIN_MS;
    for (Worker worker : workers) {
      while (worker.isAlive() && noneFailed(workers)) {
        if (System.currentTimeMillis() > until) {
          throw new IllegalStateException(worker.getName() + " does not end");
        }
        worker.join(JOINS_FOR_MS);
      }
    }
  }

  private static boolean noneFailed(List<Worker> workers) {
    return workers.stream().allMatch(worker -> worker.failure() == null);
  }

  /** An exception that lock() or unlock() of Redisson throws; the latter when the lease was lost. */
  private static boolean ofRedisson(Throwable failure) {
    return failure instanceof RedisException || failure instanceof IllegalMonitorStateException;
  }

  private void check(List<Worker> workers) {
    for (Worker worker : workers) {
      if (worker.failure() != null) {
        throw ofRedisson(worker.failure())
            ? new ClientFailed(worker, workers)
            : new IllegalStateException(worker.getName() + " failed", worker.failure());
      }
    }
    long pairs = pairs(workers);
    long counted = Arrays.stream(guarded).mapToLong(lock -> lock.count).sum();
    if (pairs != counted) {
      throw new IllegalStateException(pairs + " pairs, but counted " + counted);
    }
  }
}
