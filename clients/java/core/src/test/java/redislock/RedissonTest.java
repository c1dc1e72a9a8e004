package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import redislock.testing.TestServer;

/** The real Redisson and this client on the same keys. */
class RedissonTest {
    private static RedissonClient redisson(TestServer server) {
        Config config = new Config();
        config.useSingleServer().setAddress(server.address()).setConnectionPoolSize(16).setConnectionMinimumIdleSize(2);
        return Redisson.create(config);
    }

    @Test
    void both_exclude_each_other() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            RedissonClient redisson = redisson(server);
            try {
                RLock theirs = redisson.getLock("k");
                FencedLock ours = client.lock("k");
                theirs.lock();
                assertFalse(ours.tryLock());
                assertFalse(ours.tryLock(100, TimeUnit.MILLISECONDS));
                assertTrue(ours.isLocked());
                theirs.unlock();
                assertTrue(ours.tryLock(5, TimeUnit.SECONDS));
                assertFalse(theirs.tryLock());
                assertTrue(theirs.isLocked());
                assertTrue(theirs.remainTimeToLive() > 25_000);
                ours.unlock();
                assertTrue(theirs.tryLock(5, TimeUnit.SECONDS));
                theirs.unlock();

                RReadWriteLock theirRw = redisson.getReadWriteLock("rw");
                FencedReadWriteLock ourRw = client.readWriteLock("rw");
                theirRw.readLock().lock();
                assertTrue(ourRw.readLock().tryLock());
                assertFalse(ourRw.writeLock().tryAcquire().isPresent());
                theirRw.readLock().unlock();
                ourRw.readLock().unlock();
                ourRw.writeLock().lock();
                assertFalse(theirRw.readLock().tryLock());
                ourRw.writeLock().unlock();
            } finally {
                redisson.shutdown();
            }
        }
    }

    @Test
    void both_take_turns() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            RedissonClient redisson = redisson(server);
            try {
                AtomicInteger inside = new AtomicInteger();
                AtomicInteger ofOurs = new AtomicInteger();
                AtomicInteger ofTheirs = new AtomicInteger();
                List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
                List<Thread> threads = new ArrayList<>();
                for (int i = 0; i < 4; i++) {
                    threads.add(worker(client.lock("turns", LockOptions.defaults().lease(Duration.ofSeconds(20))),
                            inside, ofOurs, failures));
                    threads.add(worker(redisson.getLock("turns"), inside, ofTheirs, failures));
                }
                threads.forEach(Thread::start);
                for (Thread thread : threads) {
                    thread.join(30_000);
                }
                assertEquals(List.of(), failures);
                assertEquals(80, ofOurs.get());
                assertEquals(80, ofTheirs.get());
            } finally {
                redisson.shutdown();
            }
        }
    }

    private static Thread worker(Lock lock, AtomicInteger inside, AtomicInteger granted, List<Throwable> failures) {
        return new Thread(() -> {
            try {
                for (int i = 0; i < 20; i++) {
                    lock.lock();
                    assertEquals(1, inside.incrementAndGet());
                    granted.incrementAndGet();
                    inside.decrementAndGet();
                    lock.unlock();
                }
            } catch (Throwable failure) {
                failures.add(failure);
            }
        });
    }
}
