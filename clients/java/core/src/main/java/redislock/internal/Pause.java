package redislock.internal;

import java.util.concurrent.ThreadLocalRandom;

/** Growing pauses between attempts to reach a server. */
public final class Pause {
    /** The first pause. */
    public static final long FIRST = 20 * Clock.MILLI;
    private static final long LONGEST = 500 * Clock.MILLI;

    private long next = FIRST;

    /** The length of the next pause. */
    public long peek() {
        return next;
    }

    /** The length of this pause, at most {@code most}; the next one is longer. */
    public long take(long most) {
        long pause = Math.min(next, most);
        next = Math.min(next * 2, LONGEST);
        return pause;
    }

    /** Begins again with the first pause. */
    public void reset() {
        next = FIRST;
    }

    /** A random part of this span. */
    public static long partOf(long span) {
        return span <= 0 ? 0 : ThreadLocalRandom.current().nextLong(span);
    }
}
