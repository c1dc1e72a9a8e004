package redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Owners of both sides who want one lock all the time, and how often each of them was passed over.
 *
 * <p>Who holds the lock counts the grants. An owner looks at the count when it begins to wait and
 * when it has the lock: what is in between went to others.
 */
final class Crowd implements AutoCloseable {
  private final int grants;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final List<Future<?>> members = new ArrayList<>();
  private final CountDownLatch all = new CountDownLatch(1);
  private final AtomicInteger granted = new AtomicInteger();
  private final Semaphore room;
  private final Count redisson = new Count();
  private final Count module = new Count();

  /** One that ends after so many grants of a lock. */
  Crowd(int grants) {
    this(grants, 1);
  }

  /** One that ends after so many grants of what has room for so many holders, see {@link Side}. */
  Crowd(int grants, int room) {
    this.grants = grants;
    this.room = new Semaphore(room);
  }

  /** What one side had. */
  static final class Count {
    /** Grants. */
    final AtomicInteger grants = new AtomicInteger();

    /** The most grants to others, of either side, during one wait. */
    final AtomicInteger mostPassed = new AtomicInteger();

    /** The most grants to the other side between two of this side's own. */
    final AtomicInteger mostInARow = new AtomicInteger();

    /** The longest wait in milliseconds. */
    final AtomicLong longestMs = new AtomicLong();

    private final AtomicInteger next = new AtomicInteger();

    /** The grant of this number is this side's; its owner has waited since that one. */
    private void add(int number, int since) {
      grants.incrementAndGet();
      mostPassed.accumulateAndGet(number - since, Math::max);
      mostInARow.accumulateAndGet(number - next.getAndSet(number + 1), Math::max);
    }
  }

  Count redisson() {
    return redisson;
  }

  Count module() {
    return module;
  }

  /** One more Redisson owner. */
  void addRedisson(Side side) {
    members.add(threads.submit(() -> play(side, redisson)));
  }

  /** One more owner who calls LOCK.*. */
  void addModule(Side side) {
    members.add(threads.submit(() -> play(side, module)));
  }

  /** All begin. */
  void begin() {
    all.countDown();
  }

  /** Waits for the last grant; fails when somebody failed. */
  void awaitEnd(long seconds) throws InterruptedException {
    try {
      for (Future<?> member : members) {
        member.get(seconds, TimeUnit.SECONDS);
      }
    } catch (ExecutionException | TimeoutException e) {
      throw new AssertionError("the crowd does not come to its end", e);
    }
  }

  @Override
  public void close() {
    threads.shutdownNow();
  }

  private Void play(Side side, Count count) throws InterruptedException {
    all.await();
    while (granted.get() < grants) {
      int before = granted.get();
      long begun = System.nanoTime();
      side.enter();
      count.longestMs.accumulateAndGet((System.nanoTime() - begun) / 1_000_000, Math::max);
      assertTrue(room.tryAcquire(side.takes()), "too many holders at a time");
      count.add(granted.getAndIncrement(), before);
      room.release(side.takes());
      side.leave();
    }
    return null;
  }
}
