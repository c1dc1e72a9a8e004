package redislock.opentelemetry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.junit5.OpenTelemetryExtension;
import io.opentelemetry.sdk.trace.data.SpanData;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockObserver;
import redislock.LockOptions;
import redislock.WrongTypeException;
import redislock.testing.Readme;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

class LockTelemetryTest {
    private static final AttributeKey<String> NAME = AttributeKey.stringKey("redis_lock.name");

    @RegisterExtension
    final OpenTelemetryExtension recorded = OpenTelemetryExtension.create();
    private final TestServer server = TestServer.start();
    private final String address = server.address();

    @AfterEach
    void close() {
        server.close();
    }

    private long count(String name) {
        return recorded.getMetrics().stream().filter(metric -> metric.getName().equals(name)).mapToLong(metric ->
                metric.getHistogramData().getPoints().stream().mapToLong(point -> point.getCount()).sum()
                + metric.getLongSumData().getPoints().stream().mapToLong(point -> point.getValue()).sum()).sum();
    }

    @Test
    void waits_holds_and_losses() throws Exception {
        OpenTelemetry telemetry = recorded.getOpenTelemetry();
        LockClient client = LockClient.builder(address).observer(new LockTelemetry(telemetry)).build();
        try (client) {
            Guard first = client.lock("k").acquire();
            CompletableFuture<Optional<Guard>> wait = client.lock("k").acquireAsync(null);
            server.awaitTickets(1);
            Waiting.waitFor("the wait", () -> client.statistics().waiting() == 1);
            first.release();
            wait.get(60, TimeUnit.SECONDS).orElseThrow().release();
            client.lock("lost", LockOptions.defaults().lease(Duration.ofMillis(300))).acquire();
            server.call("LOCK.BREAK", "lost");
            Waiting.waitFor("the metrics", () -> count("redis_lock.wait") == 3 && count("redis_lock.hold") == 2
                    && count("redis_lock.losses") == 1);
            assertEquals(0, count("redis_lock.late_renewals"));
            server.call("SET", "text", "x");
            assertThrows(WrongTypeException.class, client.lock("text")::tryLock);
            Waiting.waitFor("the spans", () -> recorded.getSpans().size() == 4);
            List<SpanData> failed = recorded.getSpans().stream().filter(span -> !span.getEvents().isEmpty()).toList();
            assertTrue(failed.size() <= 1, failed.toString());
            recorded.getSpans().forEach(span -> assertEquals("lock exclusive", span.getName()));
            assertFalse(recorded.getSpans().toString().contains("\"lost\""), "names of locks");
        }
        assertFalse(recorded.getMetrics().stream().map(MetricData::toString).anyMatch(text -> text.contains("text")));
    }

    @Test
    void a_name_is_what_the_program_makes_of_it() throws Exception {
        LockTelemetry observer = new LockTelemetry(recorded.getOpenTelemetry(), name -> name.split(":")[0]);
        try (LockClient client = LockClient.builder(address).observer(observer).build()) {
            client.semaphore("pool:7").limit(1).acquire().release();
            Waiting.waitFor("the span", () -> recorded.getSpans().size() == 1);
            assertEquals("pool", recorded.getSpans().get(0).getAttributes().get(NAME));
            assertEquals("lock semaphore", recorded.getSpans().get(0).getName());
        }
    }

    @Test
    void an_answer_that_comes_first_leaves_nothing_open() {
        LockTelemetry observer = new LockTelemetry(recorded.getOpenTelemetry());
        LockObserver.Subject lock = new LockObserver.Subject("k", "read", 1);
        observer.answered(lock, true, Duration.ZERO, null);
        observer.asked(lock);
        assertEquals(1, recorded.getSpans().size());
        observer.late(lock, Duration.ofSeconds(1));
        assertEquals(1, count("redis_lock.late_renewals"));
    }

    @Test
    void the_example_of_the_readme_is_in_this_test() {
        Readme.requireExamplesIn("src/test/java/redislock/opentelemetry/LockTelemetryTest.java");
    }
}
