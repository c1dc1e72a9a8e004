package redislock.internal;

import java.util.concurrent.TimeUnit;

/**
 * A moment by both clocks: the monotonic one may stand still while the machine is suspended, the wall clock may be set.
 *
 * @param steady for timers, see {@link Clock}
 * @param wall   milliseconds since 1970
 */
public record Moment(long steady, long wall) {
    /** The present moment. */
    public static Moment now() {
        return new Moment(Clock.now(), System.currentTimeMillis());
    }

    /** The moment earlier by this span. */
    public Moment before(long span) {
        return new Moment(steady - span, wall - TimeUnit.NANOSECONDS.toMillis(span));
    }

    /** The elapsed time in nanoseconds, by the clock that shows more. */
    public long elapsed() {
        long wallElapsed = TimeUnit.MILLISECONDS.toNanos(System.currentTimeMillis() - wall);
        return Math.max(Clock.now() - steady, wallElapsed);
    }
}
