package lockbench;

import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Redisson's clients, a JVM's worth each. Only their pools are fitted to the job, so that no
 * connection is opened while it is measured, and their threads are shared: a hundred clients in one
 * process would have thousands otherwise. For a crowd the pools are Redisson's default.
 */
final class RedissonLocks implements Locks {
  /** Of each client, for commands: nobody waits for the answer to the last one of unlock(). */
  private static final int FEWEST_CONNECTIONS = 2;

  /** Redisson's default. */
  private static final int MOST_CONNECTIONS = 64;

  /** Redisson's default. */
  private static final int EXECUTOR_THREADS = 16;

  /** Redisson has 32 by default; on one core its pairs are the fastest with one. */
  private static final int EVENT_THREADS = 1;

  /** Longer than the default of 3 s: a machine that stalls does not end the run. */
  private static final int ANSWERS_WITHIN_MS = 30_000;

  private static final int ENDS_WITHIN_S = 5;

  private final Job job;
  private final BiFunction<RedissonClient, String, Lock> kind;
  private final List<RedissonClient> clients = new ArrayList<>();
  private final MultiThreadIoEventLoopGroup events =
      new MultiThreadIoEventLoopGroup(EVENT_THREADS, NioIoHandler.newFactory());
  private final ExecutorService executor = Executors.newFixedThreadPool(EXECUTOR_THREADS);

  RedissonLocks(Server server, Job job, BiFunction<RedissonClient, String, Lock> kind) {
    this.job = job;
    this.kind = kind;
    for (int client = 0; client < job.clients(); client++) {
      clients.add(Redisson.create(config(server)));
    }
  }

  private Config config(Server server) {
    Config config = new Config();
    config.setEventLoopGroup(events);
    config.setExecutor(executor);
    SingleServerConfig single =
        config
            .useSingleServer()
            .setAddress("redis://127.0.0.1:" + server.port())
            .setTimeout(ANSWERS_WITHIN_MS);
    if (!job.crowd()) {
      int wanted = Math.max(job.threadsPerClient(), FEWEST_CONNECTIONS);
      int connections = Math.min(wanted, MOST_CONNECTIONS);
      single.setConnectionPoolSize(connections).setConnectionMinimumIdleSize(connections);
    }
    return config;
  }

  @Override
  public Lock lockOf(int thread) {
    return kind.apply(clients.get(job.clientOf(thread)), job.lockOf(thread));
  }

  @Override
  public void close() {
    clients.forEach(RedissonClient::shutdown);
    executor.shutdown();
    events.shutdownGracefully(0, ENDS_WITHIN_S, TimeUnit.SECONDS).syncUninterruptibly();
  }
}
