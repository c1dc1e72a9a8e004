package redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;

/** Delays that were measured: told, and held against a bound that only a missed message exceeds. */
final class Delays {
  /** A tenth of the shortest time after which a waiter would look by itself. */
  private static final long BOUND_NANOS = 3_000_000_000L;

  private final String what;
  private final long[] nanos;
  private int count;

  Delays(String what, int expected) {
    this.what = what;
    this.nanos = new long[expected];
  }

  void add(long delay) {
    nanos[count++] = delay;
  }

  /** Prints median, 99th percentile and maximum in microseconds. */
  void report() {
    long[] sorted = Arrays.copyOf(nanos, count);
    Arrays.sort(sorted);
    String version = System.getProperty("tested.version");
    System.out.printf(
        "measured with Redisson %s: %s: median %d us, p99 %d us, max %d us (%d times)%n",
        version, what, micros(sorted, 50), micros(sorted, 99), micros(sorted, 100), count);
    assertTrue(sorted[count - 1] < BOUND_NANOS, "somebody was not woken");
  }

  private static long micros(long[] sorted, int percent) {
    return sorted[(sorted.length - 1) * percent / 100] / 1_000;
  }
}
