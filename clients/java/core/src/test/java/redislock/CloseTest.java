package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The end of a client. */
class CloseTest {
    private static Set<String> threads() {
        return Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
                .filter(name -> name.startsWith("redis-lock") || name.startsWith("lettuce") || name.startsWith("netty"))
                .collect(Collectors.toSet());
    }

    @Test
    void closing_ends_waits_gives_back_holds_and_leaves_nothing() throws Exception {
        try (TestServer server = TestServer.start()) {
            Waiting.waitFor("the threads of other tests", () -> threads().isEmpty());
            LockClient client = Clients.create(server.address());
            FencedLock lock = client.lock("k");
            Guard guard = lock.acquire();
            FencedLock byThread = client.lock("thread");
            byThread.lock();
            client.semaphore("s").limit(1).acquire();
            CompletableFuture<Optional<Guard>> wait = lock.acquireAsync(null);
            CompletableFuture<Boolean> latch = client.latch("closed").awaitAsync(Duration.ofSeconds(20));
            AtomicReference<Throwable> thrown = new AtomicReference<>();
            Thread waiter = new Thread(() -> {
                try {
                    lock.lock();
                } catch (Throwable error) {
                    thrown.set(error);
                }
            });
            waiter.start();
            server.awaitTickets(2);
            long start = System.nanoTime();
            client.close();
            assertTrue(System.nanoTime() - start < 4_500_000_000L, "no response timeout");
            client.close();
            waiter.join(5_000);
            assertEquals(LockClosedException.class, thrown.get().getClass());
            ExecutionException failed = assertThrows(ExecutionException.class, () -> wait.get(5, TimeUnit.SECONDS));
            assertEquals(LockClosedException.class, failed.getCause().getClass());
            assertTrue(latch.isDone());
            assertEquals(Duration.ZERO, guard.validFor());
            assertEquals(Released.YES, guard.release());
            assertEquals(0, byThread.getHoldCount());
            assertThrows(IllegalMonitorStateException.class, byThread::unlock);
            Waiting.waitFor("no connection", () -> server.clients().isEmpty());
            assertEquals(0L, server.stat("tickets"));
            assertNull(server.call("LOCK.INFO", "k"));
            assertNull(server.call("LOCK.INFO", "thread"));
            assertEquals("1", server.call("GET", "s"));
            Waiting.waitFor("no thread", () -> threads().isEmpty());
            assertThrows(LockClosedException.class, lock::lock);
            assertThrows(LockClosedException.class, lock::tryAcquire);
            assertThrows(LockClosedException.class, () -> client.latch("l").tryAwait());
            assertThrows(LockClosedException.class, () -> client.semaphore("s").set(1));
        }
    }

    @Test
    void closing_is_bounded_when_the_server_stands_still() throws Exception {
        try (TestServer server = TestServer.start()) {
            LockClient client = LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(1)).build();
            client.lock("k").acquire();
            server.pause();
            long start = System.nanoTime();
            client.close();
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(took >= 900 && took < 5_000, "took " + took);
            server.resume();
            Waiting.waitFor("no thread", () -> threads().isEmpty());
        }
    }

    @Test
    void a_thread_that_is_interrupted_again_and_again_closes_the_client() throws Exception {
        try (TestServer server = TestServer.start()) {
            for (int round = 0; round < 3; round++) {
                LockClient client = Clients.create(server.address());
                client.lock("k").acquire();
                AtomicReference<Object> outcome = new AtomicReference<>();
                Thread closing = new Thread(() -> {
                    try {
                        client.close();
                        outcome.set(Thread.currentThread().isInterrupted());
                    } catch (Throwable error) {
                        outcome.set(error);
                    }
                });
                closing.start();
                while (closing.isAlive()) {
                    closing.interrupt();
                    Thread.yield();
                }
                assertEquals(true, outcome.get());
                Waiting.waitFor("no connection", () -> server.clients().isEmpty());
                Waiting.waitFor("no thread", () -> threads().isEmpty());
                assertNull(server.call("LOCK.INFO", "k"));
            }
        }
    }

    @Test
    void closing_ends_calls_that_wait_for_an_answer() throws Exception {
        try (TestServer server = TestServer.start()) {
            LockClient client = LockClient.builder(server.address()).responseTimeout(Duration.ofSeconds(2)).build();
            Guard guard = client.lock("k").acquire();
            Guard renewed = client.lock("r").acquire();
            client.lock("t").lock();
            server.pause();
            List<Thread> threads = new ArrayList<>();
            List<Runnable> calls = List.of(guard::release, () -> renewed.renew(Duration.ofSeconds(40)),
                    () -> client.latch("l").countDown(), () -> client.semaphore("s").set(1));
            for (Runnable call : calls) {
                Thread thread = new Thread(() -> {
                    try {
                        call.run();
                    } catch (LockException | LockClosedException expected) {
                        // Which error it gets, of the silence or of the end, depends on which comes first.
                    }
                });
                thread.start();
                threads.add(thread);
            }
            // sleep: the calls are to wait for an answer when the client is closed
            Thread.sleep(100);
            client.close();
            for (Thread thread : threads) {
                thread.join(5_000);
                assertTrue(!thread.isAlive(), "a call waits for ever");
            }
            server.resume();
        }
    }

    @Test
    void shared_resources_stay_open() throws Exception {
        ClientResources resources = ClientResources.create();
        try (TestServer server = TestServer.start()) {
            for (int i = 0; i < 2; i++) {
                try (LockClient client = LockClient.builder(server.address()).clientResources(resources)
                        .executor(task -> new Thread(task).start()).build()) {
                    client.lock("k").lock();
                }
                Waiting.waitFor("no connection", () -> server.clients().isEmpty());
                assertNull(server.call("LOCK.INFO", "k"));
            }
        } finally {
            resources.shutdown(0, 1, TimeUnit.SECONDS).await();
        }
    }

    @Test
    void a_client_that_sends_nothing_leaves_nothing() {
        LockClient client = LockClient.create("redis://127.0.0.1:1");
        assertEquals("127.0.0.1:1/0", client.name());
        client.close();
        Waiting.waitFor("no thread", () -> threads().isEmpty());
    }

    @Test
    void closed_guards_are_settled() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            for (int i = 0; i < 20; i++) {
                client.lock("k" + i).tryAcquire().orElseThrow().close();
            }
            assertEquals(List.of(), client.settled(Duration.ofSeconds(5)));
            for (int i = 0; i < 20; i++) {
                assertNull(server.call("LOCK.INFO", "k" + i));
            }
        }
    }
}
