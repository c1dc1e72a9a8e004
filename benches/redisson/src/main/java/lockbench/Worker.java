package lockbench;

import java.util.Arrays;

/**
 * A thread that takes and gives its lock until it is told to stop. While it has the lock it counts,
 * in two steps, so that somebody who had the lock at the same time would be seen.
 */
final class Worker extends Thread {
  /** Ends a worker that is never told to stop. */
  private static final int MOST_PAIRS = 2_000_000;

  /** In one of so many pairs the other threads get a chance to be where they must not. */
  private static final int LETS_OTHERS_RUN = 50;

  /** Bytes; what a thread needs while it waits in a client library. Ten thousand of them start. */
  private static final long STACK = 256 << 10;

  private final Load load;
  private final int number;
  private long[] waits = new long[1024];
  private int granted;
  private volatile long pairs;
  private volatile Throwable failure;

  Worker(Load load, int number) {
    super(null, null, "worker-" + number, STACK);
    setDaemon(true);
    this.load = load;
    this.number = number;
  }

  @Override
  public void run() {
    try (Locks.Lock lock = load.locks.lockOf(number)) {
      Load.Guarded guarded = load.guardedBy(number);
      load.connected.countDown();
      while (!load.stop && pairs < MOST_PAIRS) {
        pair(lock, guarded);
      }
    } catch (Throwable error) {
      failure = error;
      load.stop = true;
    } finally {
      load.connected.countDown();
    }
  }

  private void pair(Locks.Lock lock, Load.Guarded guarded) {
    long asked = System.nanoTime();
    long token = lock.lock();
    if (load.measuring) {
      note(System.nanoTime() - asked);
    }
    guarded.enter(token);
    count(guarded);
    lock.unlock();
    pairs = pairs + 1;
  }

  private void count(Load.Guarded guarded) {
    long before = guarded.count;
    if (pairs % LETS_OTHERS_RUN == 0) {
      Thread.yield();
    }
    guarded.count = before + 1;
  }

  private void note(long wait) {
    if (granted == waits.length) {
      waits = Arrays.copyOf(waits, 2 * granted);
    }
    waits[granted++] = wait;
  }

  /** How long every grant in the measured time was waited for, in nanoseconds. */
  long[] waits() {
    return Arrays.copyOf(waits, granted);
  }

  /** All its pairs, those outside the measured time included. */
  long pairs() {
    return pairs;
  }

  Throwable failure() {
    return failure;
  }
}
