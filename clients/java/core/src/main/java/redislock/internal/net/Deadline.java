package redislock.internal.net;

import java.util.concurrent.atomic.AtomicBoolean;
import redislock.internal.Loop;

/** The time limit of a step: either the step ends in time, or the limit has passed and the step's result is late. */
final class Deadline {
    private final AtomicBoolean isOver = new AtomicBoolean();
    private final Loop.Timer timer;

    /** {@code onPassed} runs on the client's thread, unless the step has ended by then. */
    Deadline(Loop loop, long moment, Runnable onPassed) {
        timer = loop.at(moment, () -> {
            if (isOver.compareAndSet(false, true)) {
                onPassed.run();
            }
        });
    }

    /** The end of the step. False when it is late. */
    boolean isMet() {
        boolean isInTime = isOver.compareAndSet(false, true);
        timer.cancel();
        return isInTime;
    }
}
