package redislock;

import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Tests wait for conditions, never for time: here is the one place that looks again and again. */
final class Until {
  /** How long a condition may take to come true on a slow, shared machine. */
  static final Duration PATIENCE = Duration.ofSeconds(20);

  private static final long STEP_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  private Until() {}

  /** Waits until the condition holds; fails when it does not in time. */
  static void until(String what, BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > PATIENCE.toNanos()) {
        fail("waited in vain for: " + what);
      }
      LockSupport.parkNanos(STEP_NANOS);
    }
  }
}
