package redislock.internal.lock;

import java.time.Duration;
import redislock.LockOptions;
import redislock.internal.Clock;

/** The bounds of leases and waits. */
public final class Leases {
    private Leases() {
    }

    /** A lease in nanoseconds, of whole milliseconds. */
    public static long checked(Duration lease) {
        return Clock.nanos(LockOptions.defaults().lease(lease).lease());
    }

    /** The end of a wait; an end that the clock cannot represent is no limit, nor is a wait of null. */
    public static long end(Duration wait) {
        if (wait == null) {
            return Clock.NEVER;
        }
        if (wait.isNegative()) {
            throw new IllegalArgumentException("a wait is not negative");
        }
        return Clock.plus(Clock.now(), Clock.nanos(wait));
    }
}
