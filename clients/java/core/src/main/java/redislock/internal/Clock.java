package redislock.internal;

import java.time.Duration;

/** Time for timers, in nanoseconds since this class was loaded, so that plain comparisons and {@link #NEVER} work. */
public final class Clock {
    /** Later than any moment. */
    public static final long NEVER = Long.MAX_VALUE;
    /** A millisecond in nanoseconds. */
    public static final long MILLI = 1_000_000;

    private static final long ORIGIN = System.nanoTime() - 1;
    /** By how much a test has moved the clock. */
    private static volatile long moved;

    private Clock() {
    }

    /** The present moment, above zero. */
    public static long now() {
        return System.nanoTime() - ORIGIN + moved;
    }

    /** Moves the clock of this process, for tests. */
    public static synchronized void advance(long span) {
        moved += span;
    }

    /** The moment after a span, which may be {@link #NEVER}. */
    public static long plus(long moment, long span) {
        long sum = moment + span;
        return sum < 0 ? NEVER : sum;
    }

    /** The end of a wait; an end that the clock cannot represent is no limit, nor is a wait of null. */
    public static long end(Duration wait) {
        if (wait == null) {
            return NEVER;
        }
        if (wait.isNegative()) {
            throw new IllegalArgumentException("a wait is not negative");
        }
        return plus(now(), nanos(wait));
    }

    /** The time left until a moment, at least zero; {@link #NEVER} without an end. */
    public static long left(long end) {
        return end == NEVER ? NEVER : Math.max(0, end - now());
    }

    /** The nanoseconds of a span, of which more than 292 years is cut off. */
    public static long nanos(Duration span) {
        try {
            return span.toNanos();
        } catch (ArithmeticException tooLong) {
            return span.isNegative() ? Long.MIN_VALUE : NEVER;
        }
    }
}
