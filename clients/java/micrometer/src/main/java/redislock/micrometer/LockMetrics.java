package redislock.micrometer;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.WeakHashMap;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;
import redislock.LockClient;
import redislock.LockStatistics;

/**
 * What this process does with the locks of a server, as meters: the counters and gauges of
 * {@link LockClient#statistics()}, and with {@link LockTimers} the durations of waits and holds.
 *
 * <p>Each meter has the tag {@code server}, the {@linkplain LockClient#name() name} of the client, and the tag {@code
 * client}, which distinguishes the clients of one server. It is a number, 1 for the first client of the process that
 * has meters, or a name of the program: {@code new LockMetrics(client, Tags.of("client", "orders"))}. Of two clients
 * with the same tags a registry would show only the first.
 *
 * <p>The names begin with {@code redis.lock}: the counter {@code redis.lock.acquisitions.refused} is {@code
 * redis_lock_acquisitions_refused_total} in Prometheus. Reading a meter sends nothing to the server. The figures of the
 * server itself are in {@code INFO lock}.
 *
 * <p>A registry keeps the meters of a client that is closed, until {@link #removeFrom} removes them.
 */
public final class LockMetrics implements MeterBinder {
    static final String PREFIX = "redis.lock.";

    private static final List<Figure> COUNTERS = List.of(
            new Figure("acquisitions", LockStatistics::acquisitions, "Acquisitions that were granted"),
            new Figure("acquisitions.refused", LockStatistics::acquisitionsRefused,
                    "Acquisitions that ended without the lock, because another owner held it or waited for it"),
            new Figure("acquisitions.failed", LockStatistics::acquisitionsFailed,
                    "Acquisitions that ended with an error"),
            new Figure("waits", LockStatistics::waits, "Acquisitions that waited in the server's queue"),
            new Figure("renewals", LockStatistics::renewals, "Renewals that the server confirmed"),
            new Figure("renewals.failed", LockStatistics::renewalsFailed,
                    "Attempted renewals that were not confirmed"),
            new Figure("losses", LockStatistics::losses, "Losses that were reported"),
            new Figure("releases", LockStatistics::releases, "Releases that the server answered"),
            new Figure("releases.failed", LockStatistics::releasesFailed,
                    "Releases, and withdrawals of waits, that were given up without a reply"),
            new Figure("connections", LockStatistics::connections, "Opened connections"));

    private static final List<Figure> GAUGES = List.of(
            new Figure("holds", LockStatistics::holds, "Locks and permits that are held, including lost ones"),
            new Figure("waiting", LockStatistics::waiting, "Acquisitions that wait in the server's queue"));

    /** The numbers of the clients that have meters. */
    private static final Map<LockClient, Integer> NUMBERS = new WeakHashMap<>();
    private static int highestNumber;

    private final LockClient client;
    /** Null: none. */
    private final @Nullable LockTimers timers;
    private final Tags tags;

    /**
     * The meters of a client.
     *
     * @param client the client
     */
    public LockMetrics(LockClient client) {
        this(client, Tags.empty());
    }

    /**
     * The meters of a client, with further tags.
     *
     * @param client the client
     * @param tags further tags of each meter, or another tag {@code client}
     */
    public LockMetrics(LockClient client, Iterable<Tag> tags) {
        this(tags, client, null);
    }

    /**
     * The meters of a client and its timers.
     *
     * @param client the client
     * @param timers the observer of this client
     */
    public LockMetrics(LockClient client, LockTimers timers) {
        this(client, timers, Tags.empty());
    }

    /**
     * The meters of a client and its timers, with further tags.
     *
     * @param client the client
     * @param timers the observer of this client
     * @param tags further tags of each meter, or another tag {@code client}
     */
    public LockMetrics(LockClient client, LockTimers timers, Iterable<Tag> tags) {
        this(tags, client, Objects.requireNonNull(timers));
    }

    private LockMetrics(Iterable<Tag> further, LockClient client, @Nullable LockTimers timers) {
        this.client = Objects.requireNonNull(client);
        this.timers = timers;
        Tags all = Tags.of(further);
        boolean isNamed = all.stream().anyMatch(tag -> tag.getKey().equals("client"));
        Tags named = isNamed ? all : all.and("client", String.valueOf(numberOf(client)));
        tags = named.and("server", client.name());
    }

    private static int numberOf(LockClient client) {
        synchronized (NUMBERS) {
            return NUMBERS.computeIfAbsent(client, first -> ++highestNumber);
        }
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        for (Figure counter : COUNTERS) {
            FunctionCounter.builder(PREFIX + counter.name, client, counter::read)
                    .tags(tags)
                    .description(counter.description)
                    .register(registry);
        }
        for (Figure gauge : GAUGES) {
            Gauge.builder(PREFIX + gauge.name, client, gauge::read)
                    .tags(tags)
                    .description(gauge.description)
                    .register(registry);
        }
        if (timers != null) {
            timers.bindTo(registry, tags);
        }
    }

    /**
     * Removes the meters of this client from a registry, for a program that opens and closes clients. Call it before
     * the client is closed.
     *
     * @param registry a registry to which they were bound
     */
    public void removeFrom(MeterRegistry registry) {
        for (Figure counter : COUNTERS) {
            remove(registry, PREFIX + counter.name, tags, Meter.Type.COUNTER);
        }
        for (Figure gauge : GAUGES) {
            remove(registry, PREFIX + gauge.name, tags, Meter.Type.GAUGE);
        }
        if (timers != null) {
            timers.removeFrom(registry, tags);
        }
    }

    static void remove(MeterRegistry registry, String name, Tags tags, Meter.Type type) {
        registry.removeByPreFilterId(new Meter.Id(name, tags, null, null, type));
    }

    /** A number of the statistics, and its name without the prefix. */
    private record Figure(String name, ToDoubleFunction<LockStatistics> value, String description) {
        double read(LockClient client) {
            return value.applyAsDouble(client.statistics());
        }
    }
}
