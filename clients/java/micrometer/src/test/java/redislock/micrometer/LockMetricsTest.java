package redislock.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.Guard;
import redislock.LockClient;
import redislock.testing.Readme;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The meters of a client, and their names in Prometheus. */
class LockMetricsTest {
    private final TestServer server = TestServer.start();
    private final LockClient client = patient(server);

    private static LockClient patient(TestServer server) {
        return LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1)).build();
    }

    @AfterEach
    void close() {
        try (server) {
            client.close();
        }
    }

    @Test
    void meters_follow_the_statistics() throws InterruptedException {
        MeterRegistry registry = new SimpleMeterRegistry();
        new LockMetrics(client).bindTo(registry);
        assertEquals(0, counter(registry, "acquisitions"));

        Guard guard = acquire(client);
        assertTrue(client.lock("lock:a").tryAcquire().isEmpty());
        assertEquals(1, counter(registry, "acquisitions"));
        assertEquals(1, counter(registry, "acquisitions.refused"));
        assertEquals(1, gauge(registry, "holds"));
        guard.release();
        assertEquals(1, counter(registry, "releases"));
        assertEquals(0, gauge(registry, "holds"));
        assertEquals(client.statistics().connections(), counter(registry, "connections"));
    }

    @Test
    void every_number_of_the_statistics_is_a_meter() {
        MeterRegistry registry = new SimpleMeterRegistry();
        new LockMetrics(client).bindTo(registry);
        Set<String> names = new TreeSet<>(client.statistics().counters().keySet());
        names.addAll(client.statistics().gauges().keySet());
        Set<String> meters = registry.getMeters().stream()
                .map(meter -> meter.getId().getName().substring("redis.lock.".length()).replace('.', '_'))
                .collect(Collectors.toCollection(TreeSet::new));
        assertEquals(names, meters);
        for (Meter meter : registry.getMeters()) {
            assertEquals(client.name(), meter.getId().getTag("server"));
            assertNotNull(meter.getId().getDescription());
        }
    }

    @Test
    void two_clients_and_further_tags() throws InterruptedException {
        MeterRegistry registry = new SimpleMeterRegistry();
        try (TestServer second = TestServer.start(); LockClient other = patient(second)) {
            new LockMetrics(client, Tags.of("fleet", "a")).bindTo(registry);
            new LockMetrics(other, Tags.of("fleet", "b")).bindTo(registry);
            acquire(other).release();
            String name = "redis.lock.acquisitions";
            assertEquals(0, registry.get(name).tag("fleet", "a").functionCounter().count());
            assertEquals(1, registry.get(name).tag("server", other.name()).functionCounter().count());
        }
    }

    @Test
    void clients_of_one_server_have_meters_of_their_own() throws InterruptedException {
        MeterRegistry registry = new SimpleMeterRegistry();
        LockTimers timers = new LockTimers();
        try (LockClient second = patient(server);
                LockClient third = LockClient.builder(server.address()).observer(timers).build()) {
            new LockMetrics(client).bindTo(new SimpleMeterRegistry());
            new LockMetrics(client).bindTo(registry);
            new LockMetrics(second).bindTo(registry);
            new LockMetrics(third, timers, Tags.of("client", "orders")).bindTo(registry);
            acquire(second).release();
            acquire(third).release();
            acquire(third).release();
            String name = "redis.lock.acquisitions";
            Map<String, Double> counts = registry.get(name).functionCounters().stream().collect(
                    Collectors.toMap(counter -> counter.getId().getTag("client"), FunctionCounter::count));
            assertEquals(3, counts.size(), counts.toString());
            assertEquals(2, counts.remove("orders"));
            List<Integer> numbers = counts.keySet().stream().map(Integer::valueOf).sorted().toList();
            assertEquals(numbers.get(0) + 1, numbers.get(1));
            assertEquals(0, counts.get(numbers.get(0).toString()));
            assertEquals(1, counts.get(numbers.get(1).toString()));
            assertNotNull(registry.get("redis.lock.hold").tag("client", "orders").timer());
        }
    }

    @Test
    void names_in_prometheus() throws InterruptedException {
        PrometheusMeterRegistry registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        new LockMetrics(client, Tags.of("client", "a")).bindTo(registry);
        acquire(client).release();
        String page = registry.scrape();
        String tag = "{client=\"a\",server=\"" + client.name() + "\"}";
        client.statistics().counters().keySet().forEach(
                name -> assertTrue(page.contains("redis_lock_" + name + "_total" + tag), page));
        client.statistics().gauges().keySet().forEach(
                name -> assertTrue(page.contains("redis_lock_" + name + tag), page));
        assertTrue(page.contains("redis_lock_acquisitions_total" + tag + " 1.0"), page);
    }

    @Test
    void timers_of_waits_and_holds() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        String address = server.address();
        LockTimers timers = new LockTimers();
        LockClient client = LockClient.builder(address).observer(timers).build();
        new LockMetrics(client, timers).bindTo(registry);
        try (client) {
            Guard first = acquire(client);
            CompletableFuture<Optional<Guard>> wait = client.lock("lock:a").acquireAsync(null);
            server.awaitTickets(1);
            first.release();
            wait.get(10, TimeUnit.SECONDS).orElseThrow().release();
            Timer waits = registry.get("redis.lock.wait").tag("server", client.name()).timer();
            Timer holds = registry.get("redis.lock.hold").tag("server", client.name()).timer();
            Waiting.waitFor("the durations", () -> waits.count() == 2 && holds.count() == 2);
            assertTrue(waits.totalTime(TimeUnit.NANOSECONDS) > 0);
            assertTrue(holds.max(TimeUnit.NANOSECONDS) >= holds.mean(TimeUnit.NANOSECONDS));
            assertEquals(0, holds.takeSnapshot().histogramCounts().length);
        }
    }

    @Test
    void meters_that_are_bound_twice_count_once() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        MeterRegistry other = new SimpleMeterRegistry();
        LockTimers timers = new LockTimers();
        try (LockClient timed = LockClient.builder(server.address()).observer(timers).build()) {
            LockMetrics metrics = new LockMetrics(timed, timers);
            metrics.bindTo(registry);
            metrics.bindTo(other);
            metrics.bindTo(registry);
            acquire(timed).release();
            acquire(timed).release();
            Waiting.waitFor("the durations", () -> other.get("redis.lock.hold").timer().count() == 2);
            assertEquals(2, registry.get("redis.lock.hold").timer().count());
        }
    }

    @Test
    void the_meters_of_a_client_that_is_closed_can_be_removed() throws Exception {
        MeterRegistry registry = new SimpleMeterRegistry();
        registry.config().commonTags("fleet", "a");
        MeterRegistry other = new SimpleMeterRegistry();
        new LockMetrics(client).bindTo(registry);
        Set<Meter> before = Set.copyOf(registry.getMeters());
        for (int i = 0; i < 3; i++) {
            LockTimers timers = new LockTimers();
            try (LockClient timed = LockClient.builder(server.address()).observer(timers).build()) {
                LockMetrics metrics = new LockMetrics(timed, timers);
                metrics.bindTo(registry);
                metrics.bindTo(other);
                assertEquals(before.size() * 2 + 2, registry.getMeters().size());
                metrics.removeFrom(registry);
                assertEquals(before, Set.copyOf(registry.getMeters()));
                acquire(timed).release();
                Timer left = other.get("redis.lock.hold").timer();
                Waiting.waitFor("the duration in the other registry", () -> left.count() == 1);
                metrics.removeFrom(other);
                assertEquals(List.of(), other.getMeters());
            }
        }
    }

    @Test
    void timers_in_prometheus_have_no_histogram() throws Exception {
        PrometheusMeterRegistry registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        LockTimers timers = new LockTimers();
        try (LockClient timed = LockClient.builder(server.address()).observer(timers).build()) {
            new LockMetrics(timed, timers, Tags.of("fleet", "a", "client", "b")).bindTo(registry);
            acquire(timed).release();
            String tags = "{client=\"b\",fleet=\"a\",server=\"" + timed.name() + "\"}";
            Waiting.waitFor("the duration",
                    () -> registry.scrape().contains("redis_lock_hold_seconds_count" + tags + " 1"));
            String page = registry.scrape();
            assertTrue(page.contains("redis_lock_wait_seconds_count" + tags), page);
            assertTrue(page.contains("redis_lock_hold_seconds_sum" + tags), page);
            assertFalse(page.contains("_bucket"), page);
        }
    }

    @Test
    void the_example_of_the_readme_is_in_this_test() {
        Readme.requireExamplesIn("src/test/java/redislock/micrometer/LockMetricsTest.java");
    }

    private static Guard acquire(LockClient client) throws InterruptedException {
        return client.lock("lock:a").acquireWithin(Waiting.PATIENCE).orElseThrow();
    }

    private static double counter(MeterRegistry registry, String name) {
        return registry.get("redis.lock." + name).functionCounter().count();
    }

    private static double gauge(MeterRegistry registry, String name) {
        return registry.get("redis.lock." + name).gauge().value();
    }
}
