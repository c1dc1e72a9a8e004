package lockbench;

import io.lettuce.core.RedisClient;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.DefaultClientResources;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The module's commands through Lettuce: all threads of a job wait by tickets of one client. */
final class TicketLocks implements Locks {
  /** The fewest that Lettuce allows: one for each of its connections here. */
  private static final int EVENT_THREADS = 2;

  private static final long WAIT_MS = 240_000;
  private static final Duration ENDS_WITHIN = Duration.ofSeconds(5);

  private final Job job;
  private final ClientResources resources =
      DefaultClientResources.builder().ioThreadPoolSize(EVENT_THREADS).build();
  private final RedisClient lettuce;
  private final TicketClient client;

  TicketLocks(Server server, Job job, boolean confirms) {
    this.job = job;
    lettuce = RedisClient.create(resources, "redis://127.0.0.1:" + server.port());
    client = new TicketClient(lettuce, confirms);
  }

  @Override
  public Lock lockOf(int thread) {
    String name = job.lockOf(thread);
    String owner = UUID.randomUUID() + ":" + thread;
    return new Lock() {
      private long token;

      @Override
      public long lock() {
        try {
          token = client.acquire(name, owner, job.leaseMs(), WAIT_MS);
          return token;
        } catch (TimeoutException | InterruptedException | ExecutionException error) {
          throw new IllegalStateException("not granted", error);
        }
      }

      @Override
      public void unlock() {
        try {
          if (!client.release(name, owner, token)) {
            throw new IllegalStateException("the lock was lost");
          }
        } catch (InterruptedException | ExecutionException error) {
          throw new IllegalStateException("not released", error);
        }
      }
    };
  }

  @Override
  public void close() {
    client.close();
    lettuce.shutdown(Duration.ZERO, ENDS_WITHIN);
    resources.shutdown(0, ENDS_WITHIN.toSeconds(), TimeUnit.SECONDS).syncUninterruptibly();
  }
}
