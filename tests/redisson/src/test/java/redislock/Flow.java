package redislock;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * A flow of control of an application that uses Redisson: a thread of one of its instances.
 *
 * <p>Redisson takes the calling thread for the owner of a lock, so everything that this owner does
 * is done in its thread.
 */
final class Flow implements AutoCloseable {
  /** Something to do that may fail. */
  interface Task {
    void run() throws Exception;
  }

  final RedissonClient redisson;
  private final ExecutorService executor;
  private final Thread thread;

  Flow(RedissonClient redisson) {
    this.redisson = redisson;
    this.executor = Executors.newSingleThreadExecutor();
    this.thread = done(executor.submit(Thread::currentThread));
  }

  /** The id of its thread, which Redisson takes for a part of the owner. */
  @SuppressWarnings("deprecation") // threadId() came with Java 19
  long threadId() {
    return thread.getId();
  }

  /** The owner as it stands in the hash of a lock: what LOCK.* calls owner. */
  String owner() {
    return redisson.getId() + ":" + threadId();
  }

  RLock lock(String name) {
    return redisson.getLock(name);
  }

  /** Does this now, in the flow's thread. */
  void run(Task task) {
    done(start(task));
  }

  /** Asks this now, in the flow's thread. */
  <T> T ask(Callable<T> question) {
    return done(executor.submit(question));
  }

  /** Begins to do this in the flow's thread: for what blocks. */
  Future<?> start(Task task) {
    return executor.submit(
        () -> {
          task.run();
          return null;
        });
  }

  /** Takes the lock, and goes to sleep over it: returns when its thread waits to be woken. */
  Future<?> startLocking(RLock lock) {
    return asleep(start(lock::lock));
  }

  /**
   * Waits until what was begun sleeps on Redisson's latch, behind which only a message wakes it.
   */
  Future<?> asleep(Future<?> begun) {
    Until.until(
        "a sleeping waiter",
        () -> {
          if (begun.isDone()) {
            throw new AssertionError("it did not have to wait");
          }
          return Arrays.stream(thread.getStackTrace())
              .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()));
        });
    return begun;
  }

  /** Unlocks, and is told that it does not hold the lock. */
  void unlocksInVain(RLock lock) {
    run(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock));
  }

  /** The result of what was begun, which must end in time. */
  static <T> T done(Future<T> begun) {
    try {
      return begun.get(Until.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw new AssertionError(e.getCause().toString(), e.getCause());
    } catch (InterruptedException | TimeoutException e) {
      throw new AssertionError("it does not end", e);
    }
  }

  @Override
  public void close() {
    executor.shutdownNow();
  }
}
