package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/**
 * A virtual thread that waits is neither pinned nor holds its carrier in another way.
 *
 * <p>There is one carrier, and the JVM may not add a second one. So if a single waiting thread held it, no other
 * virtual thread would run, and the test that needs one would not come to its end. The JVM's own event shows threads
 * that are pinned while they wait: up to Java 23 also those that hold a monitor.
 */
@EnabledForJreRange(min = JRE.JAVA_21, disabledReason = "virtual threads need Java 21")
class VirtualThreadsTest {
    private static final int THREADS = 2_000;
    private static final long LIMIT_MILLIS = 30_000;
    private static final String PINNED = "jdk.VirtualThreadPinned";

    private static TestServer server;
    private static Method start;
    /** The names of the carriers on which the threads of these tests have run. */
    private static final Set<String> CARRIERS = ConcurrentHashMap.newKeySet();
    private LockClient client;
    private final Queue<Throwable> failures = new ConcurrentLinkedQueue<>();

    /** The code of a thread. */
    interface Body {
        void run() throws Exception;
    }

    @BeforeAll
    static void prepare() throws Exception {
        // Read when the first virtual thread of the process starts.
        for (String setting : List.of("parallelism", "maxPoolSize", "minRunnable")) {
            System.setProperty("jdk.virtualThreadScheduler." + setting, "1");
        }
        start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        server = TestServer.start();
        // A class that is loaded by a virtual thread may pin it.
        try (LockClient first = Clients.create(server.address())) {
            Guard guard = first.lock("warm").acquire();
            assertFalse(first.lock("warm").tryLock(1, TimeUnit.MILLISECONDS));
            assertTrue(first.semaphore("warm:s").limit(1).tryAcquire().isPresent());
            assertTrue(first.latch("warm:l").tryAwait());
            guard.release();
        }
    }

    @AfterAll
    static void end() {
        server.close();
        assertEquals(1, CARRIERS.size(), "the tests had more than one carrier: " + CARRIERS);
    }

    @BeforeEach
    void open() {
        server.call("FLUSHALL");
        client = Clients.create(server.address());
    }

    @AfterEach
    void close() {
        client.close();
    }

    private static void noteCarrier() {
        String name = Thread.currentThread().toString();
        assertTrue(name.startsWith("VirtualThread["), name);
        CARRIERS.add(name.substring(name.lastIndexOf('@') + 1));
    }

    private Thread startVirtual(Body body) {
        Runnable task = () -> {
            try {
                noteCarrier();
                body.run();
                noteCarrier();
            } catch (Throwable failure) {
                failures.add(failure);
            }
        };
        try {
            return (Thread) start.invoke(null, task);
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private List<Thread> startAll(int count, Body body) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add(startVirtual(body));
        }
        return threads;
    }

    /** Waits for the ends of virtual threads. */
    private void join(List<Thread> threads) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIMIT_MILLIS);
        for (Thread thread : threads) {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())));
            if (thread.isAlive()) {
                throw new AssertionError("a virtual thread does not end, so a carrier is held: " + thread
                        + Arrays.toString(thread.getStackTrace()) + ", failures: " + failures);
            }
        }
        assertEquals(List.of(), List.copyOf(failures));
    }

    private void join(Thread... threads) throws InterruptedException {
        join(List.of(threads));
    }

    /**
     * Runs this, and returns when threads were pinned meanwhile: their events, with their stacks. Not those of a thread
     * that loads a class, because another thread may hold the loader's monitor for that class at this moment.
     */
    private static List<RecordedEvent> pinnedDuring(Body body) throws Exception {
        Path file = Files.createTempFile("pinned", ".jfr");
        try (Recording recording = new Recording()) {
            recording.enable(PINNED).withThreshold(Duration.ZERO).withStackTrace();
            recording.start();
            body.run();
            recording.stop();
            recording.dump(file);
            return RecordingFile.readAllEvents(file).stream()
                    .filter(event -> event.getEventType().getName().equals(PINNED))
                    .filter(event -> !loadsClass(event)).toList();
        } finally {
            Files.delete(file);
        }
    }

    private static boolean loadsClass(RecordedEvent event) {
        return event.getStackTrace().getFrames().stream()
                .anyMatch(frame -> frame.getMethod().getType().getName().equals("java.lang.ClassLoader"));
    }

    private static void assertNonePinned(Body body) throws Exception {
        assertEquals(List.of(), pinnedDuring(body));
    }

    /** A resource that checks who is inside: at most so many at a time, and with rising tokens. */
    private static final class Section {
        private final int limit;
        private final AtomicInteger inside = new AtomicInteger();
        private final AtomicLong token = new AtomicLong();
        private final AtomicInteger entered = new AtomicInteger();

        Section(int limit) {
            this.limit = limit;
        }

        void enter(long withToken) {
            int present = inside.incrementAndGet();
            assertTrue(present <= limit, present + " holders of " + limit);
            if (limit == 1) {
                long before = token.getAndSet(withToken);
                assertTrue(withToken > before, withToken + " after " + before);
            }
            entered.incrementAndGet();
            // Another virtual thread runs on the carrier now.
            Thread.yield();
            inside.decrementAndGet();
        }
    }

    @Test
    void thousands_of_threads_contend_for_every_kind_of_lock() throws Exception {
        int share = THREADS / 4;
        Section one = new Section(1);
        Section timed = new Section(1);
        Section written = new Section(1);
        Section permits = new Section(3);
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger reads = new AtomicInteger();
        FencedReadWriteLock catalogue = client.readWriteLock("catalogue");
        LockSemaphore semaphore = client.semaphore("permits").limit(3);
        Latch begin = client.latch("begin");
        Latch done = client.latch("done");
        begin.set(1);
        done.set(THREADS);
        assertNonePinned(() -> {
            List<Thread> threads = new ArrayList<>();
            for (Body body : List.<Body>of(() -> {
                FencedLock lock = client.lock("one");
                lock.lock();
                lock.lock();
                one.enter(lock.token());
                lock.unlock();
                lock.unlock();
            }, () -> {
                FencedLock lock = client.lock("timed");
                assertTrue(lock.tryLock(LIMIT_MILLIS, TimeUnit.MILLISECONDS));
                timed.enter(lock.token());
                lock.unlock();
            }, () -> {
                catalogue.readLock().lock();
                readers.incrementAndGet();
                reads.incrementAndGet();
                Thread.yield();
                readers.decrementAndGet();
                catalogue.readLock().unlock();
                if (reads.get() % 5 == 0) {
                    catalogue.writeLock().lock();
                    assertEquals(0, readers.get());
                    written.enter(catalogue.writeLock().token());
                    catalogue.writeLock().unlock();
                }
            }, () -> {
                try (Permit permit = semaphore.acquire()) {
                    permits.enter(permit.token());
                }
            })) {
                threads.addAll(startAll(share, () -> {
                    begin.await();
                    body.run();
                    done.countDown();
                }));
            }
            Waiting.waitFor("all of them at the latch", () -> client.statistics().waiting() == THREADS);
            Thread ender = startVirtual(done::await);
            join(startVirtual(begin::countDown));
            join(threads);
            join(ender);
        });
        assertEquals(List.of(share, share, share, share),
                List.of(one.entered.get(), timed.entered.get(), reads.get(), permits.entered.get()));
        assertTrue(written.entered.get() > 0);
        Waiting.waitFor("no hold", () -> client.statistics().holds() == 0);
    }

    @Test
    void threads_that_wait_in_the_queue_leave_the_carrier_to_the_holder() throws Exception {
        assertNonePinned(() -> {
            FencedLock lock = client.lock("queue");
            Latch end = client.latch("end");
            end.set(1);
            Thread holder = startVirtual(() -> {
                lock.lock();
                end.await();
                lock.unlock();
            });
            Waiting.waitFor("the holder", () -> client.statistics().waiting() == 1);
            List<Thread> waiters = startAll(THREADS, () -> {
                lock.lockInterruptibly();
                lock.unlock();
            });
            Waiting.waitFor("the queue", () -> client.statistics().waiting() == THREADS + 1);
            join(startVirtual(end::countDown));
            join(holder);
            join(waiters);
        });
    }

    @Test
    void threads_that_wait_for_a_reply_leave_the_carrier() throws Exception {
        FencedLock lock = client.lock("reply");
        Latch latch = client.latch("other");
        latch.set(1_000);
        assertNonePinned(() -> {
            List<Thread> threads = new ArrayList<>();
            server.pause();
            try {
                for (int i = 0; i < 50; i++) {
                    FencedLock single = client.lock("single" + i);
                    MultiLock both = client.multiLock(client.lock("a" + i), client.lock("b" + i));
                    threads.add(startVirtual(lock::isLocked));
                    threads.add(startVirtual(latch::countDown));
                    threads.add(startVirtual(() -> single.acquire().release()));
                    threads.add(startVirtual(() -> both.acquire().release()));
                    threads.add(startVirtual(() -> {
                        if (lock.tryLock()) {
                            lock.unlock();
                        }
                    }));
                }
                // The server answers none of them, and all the same others can run.
                join(startVirtual(() -> {}));
                assertTrue(threads.stream().allMatch(Thread::isAlive), "the server has not answered yet");
            } finally {
                server.resume();
            }
            join(threads);
        });
        assertEquals(950, latch.count());
    }

    @Test
    void interruptions_end_waits_and_bounds_hold() throws Exception {
        int count = 300;
        FencedLock lock = client.lock("held");
        Guard guard = lock.acquire();
        AtomicInteger interrupted = new AtomicInteger();
        Queue<Long> waits = new ConcurrentLinkedQueue<>();
        Duration wait = Duration.ofMillis(500);
        assertNonePinned(() -> {
            List<Thread> uninterruptible = startAll(1, () -> {
                lock.lock();
                assertTrue(Thread.interrupted(), "the interruption is restored");
                lock.unlock();
            });
            List<Thread> interruptible = startAll(count, () -> {
                assertThrows(InterruptedException.class, lock::lockInterruptibly);
                interrupted.incrementAndGet();
            });
            server.awaitTickets(count + 1);
            uninterruptible.forEach(Thread::interrupt);
            interruptible.forEach(Thread::interrupt);
            join(interruptible);
            assertEquals(count, interrupted.get());
            server.awaitTickets(1);
            List<Thread> bounded = startAll(count, () -> {
                long begin = System.nanoTime();
                assertFalse(lock.tryLock(wait.toMillis(), TimeUnit.MILLISECONDS));
                long took = System.nanoTime() - begin;
                assertTrue(took >= wait.toNanos(), took + " ns");
                waits.add(took);
            });
            join(bounded);
            guard.release();
            join(uninterruptible);
        });
        // 0.3 s after the bound at the latest; some of them later on a machine with other work.
        List<Long> sorted = waits.stream().sorted().toList();
        assertTrue(sorted.get(count / 2) < wait.plusMillis(300).toNanos(), sorted.get(count / 2) + " ns");
        assertTrue(sorted.get(count - 1) < wait.plusMillis(2_000).toNanos(), sorted.get(count - 1) + " ns");
        assertTrue(lock.tryLock());
        lock.unlock();
    }

    private static FencedLock pinning;

    /** Its initialization waits for a lock. The JVM cannot take a thread off its carrier meanwhile. */
    private static final class Pinning {
        static {
            pinning.lock();
            pinning.unlock();
        }

        static void initialize() {}
    }

    /** The tests above can fail. */
    @Test
    void a_thread_that_waits_in_a_class_initializer_is_found() throws Exception {
        pinning = client.lock("pinning");
        List<RecordedEvent> pinned = pinnedDuring(() -> join(startVirtual(Pinning::initialize)));
        assertFalse(pinned.isEmpty());
        assertTrue(pinned.get(0).getStackTrace().getFrames().stream()
                .anyMatch(frame -> frame.getMethod().getType().getName().endsWith("Blocking")), pinned.toString());
    }
}
