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
    conn.bePatient(WAIT_SECONDS);
    String[] acquire = {"LOCK.ACQUIRE", LOCK, owner, "EX", "" + LEASE_SECONDS, "BLOCK", "0"};
    return new Side() {
      private long last;

      @Override
      public void enter() {
        Object token = conn.call(acquire);
        if (!(token instanceof Long higher) || higher <= last) {
          throw new AssertionError("token " + token + " after " + last);
        }
        last = higher;
      }

      @Override
      public void leave() {
        Object freed = conn.call("LOCK.RELEASE", LOCK, owner, "TOKEN", "" + last);
        if (!Long.valueOf(1).equals(freed)) {
          throw new AssertionError("released: " + freed);
        }
      }
    };
  }
}
