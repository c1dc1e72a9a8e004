package clientbench;

import java.util.Arrays;
import java.util.stream.LongStream;

/** A thread that takes the lock and gives it back at once, again and again. */
final class Contender extends Thread {
  /** Ends a contender that is never told to stop. */
  private static final int MOST_PAIRS = 1_000_000;

  /** In one of so many pairs other contenders get the chance to come between. */
  private static final int LETS_OTHERS_RUN = 50;

  private final Cell cell;
  private final Locks.Lock lock;
  private final Guarded guarded;
  private final int pauseMs;
  private long[] waits = new long[1024];
  private int granted;
  private volatile long pairs;

  /** When the open wait began; 0 without one. */
  private volatile long asked;

  Contender(Cell cell, int number, Locks.Lock lock, Guarded guarded, int pauseMs) {
    super("contender-" + number);
    setDaemon(true);
    this.cell = cell;
    this.lock = lock;
    this.guarded = guarded;
    this.pauseMs = pauseMs;
  }

  @Override
  public void run() {
    try {
      while (!cell.stopped() && pairs < MOST_PAIRS) {
        pair();
      }
    } catch (Throwable error) {
      cell.fail(error);
    }
  }

  private void pair() throws InterruptedException {
    asked = System.nanoTime();
    long token = lock.lock();
    if (cell.measuring()) {
      note(System.nanoTime() - asked);
    }
    asked = 0;
    long count = guarded.enter(token);
    if (pairs % LETS_OTHERS_RUN == 0) {
      Thread.yield();
    }
    guarded.leave(count);
    pairs = pairs + 1;
    lock.unlock();
    if (pauseMs > 0) {
      Thread.sleep(pauseMs);
    }
  }

  private void note(long wait) {
    if (granted == waits.length) {
      waits = Arrays.copyOf(waits, 2 * granted);
    }
    waits[granted++] = wait;
  }

  /** Nanoseconds of the waits that ended in the measured time. */
  LongStream waits() {
    return Arrays.stream(waits, 0, granted);
  }

  int granted() {
    return granted;
  }

  /** The age of an open wait, in nanoseconds; 0 without one. */
  long open(long now) {
    long since = asked;
    return since == 0 ? 0 : now - since;
  }

  long pairs() {
    return pairs;
  }
}
