package redislock.opentelemetry;

import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redislock.LockObserver;
import redislock.LostReason;

/**
 * Metrics and spans of a client, which has it as its observer: the histograms {@code redis_lock.wait} (acquisitions,
 * with the attribute {@code redis_lock.granted}) and {@code redis_lock.hold}, in seconds, the counters {@code
 * redis_lock.losses} and {@code redis_lock.late_renewals}, and a span {@code lock <kind>} from the begin of each
 * acquisition to its end. The events come on the client's executor, so a span has no parent.
 */
public final class LockTelemetry implements LockObserver {
    private final Tracer tracer;
    private final DoubleHistogram waits;
    private final DoubleHistogram holds;
    private final LongCounter losses;
    private final LongCounter late;
    private final Function<String, @Nullable String> nameOf;
    private final Map<Subject, Span> spans = new ConcurrentHashMap<>();

    /**
     * Without the names of locks, of which there may be any number.
     *
     * @param telemetry that of the program
     */
    public LockTelemetry(OpenTelemetry telemetry) {
        this(telemetry, name -> null);
    }

    /**
     * With names.
     *
     * @param telemetry that of the program
     * @param nameOf    the attribute {@code redis_lock.name} for the name of a lock, or null for none
     */
    public LockTelemetry(OpenTelemetry telemetry, Function<String, @Nullable String> nameOf) {
        this.nameOf = nameOf;
        tracer = telemetry.getTracer("redis-lock");
        Meter meter = telemetry.getMeter("redis-lock");
        waits = meter.histogramBuilder("redis_lock.wait").setUnit("s").build();
        holds = meter.histogramBuilder("redis_lock.hold").setUnit("s").build();
        losses = meter.counterBuilder("redis_lock.losses").build();
        late = meter.counterBuilder("redis_lock.late_renewals").build();
    }

    private AttributesBuilder attributes(Subject lock) {
        // A value that is null is left out.
        return Attributes.builder().put("redis_lock.kind", lock.kind())
                .put("redis_lock.name", nameOf.apply(lock.name()));
    }

    private static double seconds(Duration span) {
        return span.toNanos() / 1e9;
    }

    @Override
    public void asked(Subject lock) {
        Span span = tracer.spanBuilder("lock " + lock.kind()).setNoParent()
                .setAllAttributes(attributes(lock).build()).startSpan();
        // The answer may have come first, and has left its mark.
        spans.merge(lock, span, (mark, asked) -> ended(asked));
    }

    @Override
    public void answered(Subject lock, boolean granted, Duration waited, @Nullable RuntimeException error) {
        waits.record(seconds(waited), attributes(lock).put("redis_lock.granted", granted).build());
        spans.merge(lock, Span.getInvalid(), (span, mark) -> {
            span.setAttribute("redis_lock.granted", granted);
            if (error != null) {
                span.recordException(error).setStatus(StatusCode.ERROR);
            }
            return ended(span);
        });
    }

    /** Ends a span, which is forgotten. */
    private static @Nullable Span ended(Span span) {
        span.end();
        return null;
    }

    @Override
    public void released(Subject lock, Duration held) {
        holds.record(seconds(held), attributes(lock).build());
    }

    @Override
    public void lost(Subject lock, LostReason reason) {
        String word = reason.name().toLowerCase(Locale.ROOT);
        losses.add(1, attributes(lock).put("redis_lock.reason", word).build());
    }

    @Override
    public void late(Subject lock, Duration by) {
        late.add(1, attributes(lock).build());
    }
}
