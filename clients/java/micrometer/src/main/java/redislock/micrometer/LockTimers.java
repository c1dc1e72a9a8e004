package redislock.micrometer;

import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redislock.LockObserver;

/**
 * The timers of a client: {@code redis.lock.wait}, of each acquisition that was granted, from its begin, and {@code
 * redis.lock.hold}, of each lock or permit that was released or left, and not lost before. They publish no percentiles
 * and no histogram, unless a {@code MeterFilter} says so.
 *
 * <p>It is given to the client as its observer, and to {@link LockMetrics}, which registers the timers. Durations
 * before that are dropped. Each client needs timers of its own.
 */
public final class LockTimers implements LockObserver {
    private static final String WAIT = LockMetrics.PREFIX + "wait";
    private static final String HOLD = LockMetrics.PREFIX + "hold";

    private final List<Pair> registered = new CopyOnWriteArrayList<>();

    /** The timers in one registry. */
    private record Pair(MeterRegistry registry, Timer waits, Timer holds) {}

    /** Timers that are not registered yet. */
    public LockTimers() {}

    /** Registers the timers. A duration is recorded once in each registry, however often they are bound to it. */
    void bindTo(MeterRegistry registry, Tags tags) {
        forget(registry);
        registered.add(new Pair(
                registry,
                Timer.builder(WAIT)
                        .tags(tags)
                        .description("Waits in the server's queue that ended with a grant")
                        .register(registry),
                Timer.builder(HOLD)
                        .tags(tags)
                        .description("Holds of locks and permits that were released in time")
                        .register(registry)));
    }

    void removeFrom(MeterRegistry registry, Tags tags) {
        forget(registry);
        LockMetrics.remove(registry, WAIT, tags, Meter.Type.TIMER);
        LockMetrics.remove(registry, HOLD, tags, Meter.Type.TIMER);
    }

    private void forget(MeterRegistry registry) {
        registered.removeIf(pair -> pair.registry == registry);
    }

    private void record(Function<Pair, Timer> timer, Duration duration) {
        registered.forEach(pair -> timer.apply(pair).record(duration));
    }

    @Override
    public void answered(Subject lock, boolean granted, Duration waited, @Nullable RuntimeException error) {
        if (granted) {
            record(Pair::waits, waited);
        }
    }

    @Override
    public void released(Subject lock, Duration held) {
        record(Pair::holds, held);
    }
}
