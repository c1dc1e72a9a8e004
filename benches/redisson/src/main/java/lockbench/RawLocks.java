package lockbench;

import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;

/**
 * The module's commands, sent raw through Jedis. A thread that waits is parked in the server and
 * blocks its connection, so every thread has one of its own, with a blocking socket: nothing else
 * to be woken between the reply and the thread.
 */
final class RawLocks implements Locks {
  private static final ProtocolCommand ACQUIRE = "LOCK.ACQUIRE"::getBytes;
  private static final ProtocolCommand RELEASE = "LOCK.RELEASE"::getBytes;

  private static final String WAIT_MS = "60000";
  private static final int ANSWER_WITHIN_MS = 90_000;

  private final Server server;
  private final Job job;

  RawLocks(Server server, Job job) {
    this.server = server;
    this.job = job;
  }

  @Override
  public Lock lockOf(int thread) {
    Jedis connection = new Jedis("127.0.0.1", server.port(), ANSWER_WITHIN_MS);
    connection.ping();
    String name = job.lockOf(thread);
    String owner = UUID.randomUUID() + ":" + thread;
    String lease = "" + job.leaseMs();
    return new Lock() {
      @Override
      public long lock() {
        Object token =
            connection.sendCommand(ACQUIRE, name, owner, "PX", lease, "BLOCK", WAIT_MS);
        if (token == null) {
          throw new IllegalStateException("not granted in " + WAIT_MS + " ms");
        }
        return (Long) token;
      }

      @Override
      public void unlock() {
        Object released = connection.sendCommand(RELEASE, name, owner);
        if (!Long.valueOf(1).equals(released)) {
          throw new IllegalStateException("released: " + released);
        }
      }

      @Override
      public void close() {
        connection.close();
      }
    };
  }

  @Override
  public void close() {}
}
