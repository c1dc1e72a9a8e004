package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Ten thousand waits of one process over two connections. */
class CrowdTest {
    private static final int WAITS = 10_000;
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    @Test
    void ten_thousand_waits_share_two_connections() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            FencedLock lock = client.lock("crowd");
            Guard first = lock.acquire();
            long before = heap();
            AtomicInteger inside = new AtomicInteger();
            AtomicLong lastToken = new AtomicLong();
            List<CompletableFuture<?>> waits = new ArrayList<>(WAITS);
            long start = System.nanoTime();
            for (int i = 0; i < WAITS; i++) {
                CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
                waits.add(wait.thenCompose(granted -> {
                    Guard guard = granted.orElseThrow();
                    assertEquals(1, inside.incrementAndGet());
                    assertTrue(guard.token() > lastToken.getAndSet(guard.token()));
                    inside.decrementAndGet();
                    return guard.releaseAsync();
                }));
            }
            Waiting.waitFor("the queue", PATIENCE, () -> server.stat("tickets") == WAITS);
            long queued = System.nanoTime();
            Waiting.waitFor("the replies", PATIENCE, () -> client.statistics().waiting() == WAITS);
            long heapOfWaits = heap() - before;
            assertEquals(2, server.clients().size());
            assertEquals(1, server.killClients(each -> !each.get("sub").equals("0")));
            long killed = System.nanoTime();
            first.release();
            CompletableFuture.allOf(waits.toArray(CompletableFuture<?>[]::new)).get(35, TimeUnit.SECONDS);
            long drained = System.nanoTime();
            System.out.printf("%,d waits: queued in %,d ms, %,d bytes of heap each, drained in %,d ms%n", WAITS,
                    (queued - start) / 1_000_000, heapOfWaits / WAITS, (drained - killed) / 1_000_000);
            assertEquals(3, client.statistics().connections(), "the subscription was killed once");
            assertEquals(0, client.statistics().waiting());
        }
    }

    @Test
    void many_threads_that_try_meet_no_error_at_a_healthy_server() throws Exception {
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofMinutes(1)).build()) {
            AtomicInteger granted = new AtomicInteger();
            ConcurrentLinkedQueue<Throwable> errors = new ConcurrentLinkedQueue<>();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 256; i++) {
                FencedLock lock = client.lock("tried" + i % 64);
                threads.add(new Thread(() -> {
                    try {
                        for (int n = 0; n < 40; n++) {
                            if (lock.tryLock()) {
                                granted.incrementAndGet();
                                lock.unlock();
                            }
                        }
                    } catch (Throwable error) {
                        errors.add(error);
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), List.copyOf(errors));
            assertTrue(granted.get() > 0);
            assertEquals(1, client.statistics().connections());
        }
    }

    private static long heap() {
        for (int i = 0; i < 3; i++) {
            System.gc();
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }
}
