package redislock.testing;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** Waits for conditions: tests do not wait for a fixed time. */
public final class Waiting {
    /** The time limit for a condition on a slow, shared machine. */
    public static final Duration PATIENCE = Duration.ofSeconds(60);

    private static final long STEP_NANOS = TimeUnit.MILLISECONDS.toNanos(2);

    private Waiting() {}

    /**
     * Waits until the condition holds.
     *
     * @param what the condition's name in the error
     * @param condition the condition, evaluated every 2 ms
     * @throws AssertionError if it does not hold within {@link #PATIENCE}
     */
    public static void waitFor(String what, BooleanSupplier condition) {
        waitFor(what, PATIENCE, condition);
    }

    /**
     * Waits until the condition holds, with a limit of its own.
     *
     * @param what the condition's name in the error
     * @param limit the time limit
     * @param condition the condition, evaluated every 2 ms
     * @throws AssertionError if it does not hold within the limit
     */
    public static void waitFor(String what, Duration limit, BooleanSupplier condition) {
        long start = System.nanoTime();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - start > limit.toNanos()) {
                throw new AssertionError("timed out waiting for: " + what);
            }
            LockSupport.parkNanos(STEP_NANOS);
        }
    }
}
