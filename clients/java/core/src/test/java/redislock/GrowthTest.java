package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.management.JMException;
import javax.management.ObjectName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** What is over leaves no object behind. */
class GrowthTest {
    private static final int KEYS = 2_000;

    /** The classes of this package of which the heap has at least this many live objects. */
    private static Map<String, Long> objects(long least) {
        Map<String, Long> found = new TreeMap<>();
        for (String line : histogram().split("\n")) {
            String[] words = line.trim().split("\\s+");
            boolean isOwn = words.length >= 4 && words[3].startsWith("redislock.");
            if (isOwn && Long.parseLong(words[1]) >= least) {
                found.put(words[3], Long.parseLong(words[1]));
            }
        }
        return found;
    }

    private static LockOptions named(int number) {
        return LockOptions.defaults().owner("me" + number);
    }

    /** The number of live objects of each class, after a garbage collection. */
    private static String histogram() {
        try {
            return (String) ManagementFactory.getPlatformMBeanServer().invoke(
                    new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram",
                    new Object[] {new String[0]}, new String[] {String[].class.getName()});
        } catch (JMException defect) {
            throw new AssertionError(defect);
        }
    }

    @Test
    @Timeout(120)
    void keys_that_are_no_longer_used_leave_nothing() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            LockOptions session = LockOptions.defaults().session();
            client.latch("closed").set(1);
            for (int i = 0; i < KEYS; i++) {
                String key = "k" + i;
                client.lock(key).lock();
                client.lock(key).unlock();
                Guard named = client.lock("n" + key, named(i)).acquire();
                if (i % 10 == 0) {
                    client.lock("n" + key).acquireAsync(null).cancel(true);
                    client.lock("n" + key).acquireAsync(Duration.ofDays(1)).cancel(true);
                    client.lock("n" + key, named(i)).acquireAsync(Duration.ofDays(1)).cancel(true);
                    client.lock("d" + key).acquireWithin(Duration.ofDays(1)).orElseThrow().release();
                    client.lock("i" + key, session).acquireWithin(Duration.ofDays(1)).orElseThrow().release();
                    client.lock("n" + key, session).acquireAsync(Duration.ofDays(1)).cancel(true);
                    client.latch("closed").awaitAsync(Duration.ofDays(1)).cancel(true);
                    FencedReadWriteLock both = client.readWriteLock("rw" + key);
                    both.readLock().lock();
                    both.readLock().unlock();
                    client.semaphore("s" + key).limit(1).acquire().close();
                    client.multiLock(client.lock("a" + key), client.lock("b" + key)).acquire().release();
                    assertTrue(client.latch("l" + key).awaitWithin(Duration.ofSeconds(5)));
                }
                named.close();
            }
            assertEquals(List.of(), client.settled(Duration.ofSeconds(20)));
            // A wait that was given up is undone for the last time after the response timeout.
            Waiting.waitFor("the end of all objects: " + objects(KEYS / 20), () -> objects(KEYS / 20).isEmpty());
        }
    }

    @Test
    void threads_that_have_ended_leave_no_lease_that_is_over() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                FencedLock lock = client.lock("k" + i);
                threads.add(new Thread(() -> lock.lock(Duration.ofMillis(300))));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            Waiting.waitFor("the losses", () -> client.statistics().losses() == 50);
            Waiting.waitFor("the end of the holds", Duration.ofSeconds(5), () -> client.statistics().holds() == 0);
        }
    }
}
