package redislock.internal;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import redislock.LockStatistics;

/** The live numbers of a client. */
public final class Counts {
    public final LongAdder acquisitions = new LongAdder();
    public final LongAdder acquisitionsRefused = new LongAdder();
    public final LongAdder acquisitionsFailed = new LongAdder();
    public final LongAdder waits = new LongAdder();
    public final LongAdder renewals = new LongAdder();
    public final LongAdder renewalsFailed = new LongAdder();
    public final LongAdder losses = new LongAdder();
    public final LongAdder releases = new LongAdder();
    public final LongAdder releasesFailed = new LongAdder();
    public final LongAdder connections = new LongAdder();
    public final AtomicLong holds = new AtomicLong();
    public final AtomicLong waiting = new AtomicLong();

    public LockStatistics read() {
        return new LockStatistics(acquisitions.sum(), acquisitionsRefused.sum(), acquisitionsFailed.sum(), waits.sum(),
                renewals.sum(), renewalsFailed.sum(), losses.sum(), releases.sum(), releasesFailed.sum(),
                connections.sum(), holds.get(), waiting.get());
    }
}
