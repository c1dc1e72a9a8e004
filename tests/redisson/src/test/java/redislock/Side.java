package redislock;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;

/** How an owner enters and leaves the contended lock: by Redisson, or by the module. */
interface Side {
  /** The name of the lock in the tests of contention. */
  String LOCK = "contended";

  /**
   * So long a holder may take: only a hold that was forgotten ends by its lease. A Redisson waiter
   * that misses a message, as they may, looks again when it is over.
   */
  long LEASE_SECONDS = 20;

  /** So long anybody may wait. */
  int WAIT_SECONDS = 90;

  /** Waits for the lock and takes it. */
  void enter() throws InterruptedException;

  /** Gives the lock back. */
  void leave();

  /** How much of the room it takes while it holds: all of it, unless there may be others. */
  default int takes() {
    return 1;
  }

  /** By Redisson's RLock, in the calling thread. */
  static Side redisson(RLock lock) {
    return new Side() {
      @Override
      public void enter() throws InterruptedException {
        if (!lock.tryLock(WAIT_SECONDS, LEASE_SECONDS, TimeUnit.SECONDS)) {
          throw new AssertionError("Redisson waited in vain");
        }
      }

      @Override
      public void leave() {
        lock.unlock();
      }
    };
  }

  /** By LOCK.ACQUIRE, parked on this connection. */
  static Side module(Conn conn, String owner) {
    return module(conn, owner, "LOCK");
  }

  /** By LOCK.ACQUIRE or SEM.ACQUIRE with more words, parked on this connection. */
  static Side module(Conn conn, String owner, String commands, String... more) {
    conn.bePatient(WAIT_SECONDS);
    String begin = String.join(" ", commands + ".ACQUIRE", LOCK, owner, String.join(" ", more));
    String acquire = begin.strip() + " EX " + LEASE_SECONDS + " BLOCK 0";
    String release = commands + ".RELEASE " + LOCK + " " + owner;
    return new Side() {
      private long last;

      @Override
      public void enter() {
        Object token = conn.line(acquire);
        // Readers share the token of their phase.
        if (!(token instanceof Long higher) || higher < last) {
          throw new AssertionError("token " + token + " after " + last);
        }
        last = higher;
      }

      @Override
      public void leave() {
        Object freed = conn.line(commands.equals("SEM") ? release : release + " TOKEN " + last);
        if (!Long.valueOf(1).equals(freed)) {
          throw new AssertionError("released: " + freed);
        }
      }
    };
  }
}
