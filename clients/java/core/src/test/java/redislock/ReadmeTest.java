package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import redislock.testing.Readme;
import redislock.testing.TestServer;

/** The examples of the package's README and of the repository's. */
class ReadmeTest {
    private static final String THIS = "src/test/java/redislock/ReadmeTest.java";

    private final TestServer server = TestServer.start();
    private final String address = server.address();
    private final LockClient client = LockClient.create(address);

    @AfterEach
    void close() throws InterruptedException {
        try (server) {
            assertEquals(0, client.settled(Duration.ofSeconds(5)).size());
            assertEquals(0, client.statistics().holds());
            assertEquals(0, client.statistics().losses());
            client.close();
        }
    }

    @Test
    void the_examples_are_in_this_test() {
        Readme.requireExamplesIn("../README.md", THIS);
    }

    @Test
    void lock() throws InterruptedException {
        try (LockClient client = LockClient.create(address)) {
            FencedLock lock = client.lock("invoices:42");
            if (lock.tryLock(60, TimeUnit.SECONDS)) {
                try {
                    System.out.println("working under token " + lock.token());
                } finally {
                    lock.unlock();
                }
            }
        }
        assertNull(server.call("LOCK.INFO", "invoices:42"));
    }

    @Test
    void guard() throws InterruptedException {
        FencedLock lock = client.lock("report", LockOptions.defaults().lease(Duration.ofSeconds(30)));
        Optional<Guard> granted = lock.acquireWithin(Duration.ofSeconds(5));
        if (granted.isPresent()) {
            try (Guard guard = granted.get()) {
                guard.lost().thenAccept(lost -> System.out.println("stop: " + lost.reason()));
                for (int page = 0; page < 3 && guard.lostReason() == null; page++) {
                    System.out.println(page + " written under token " + guard.token());
                }
            }
        }
        assertEquals(1, client.statistics().acquisitions());
    }

    @Test
    void from_process_to_process() throws InterruptedException {
        FencedLock order = client.lock("order:42");
        Guard first = order.acquire();
        first.leave(Duration.ofSeconds(30));
        try (Guard second = order.resume(first.owner(), first.token())) {
            System.out.println("goes on under token " + second.token());
        }
        client.settled(Duration.ofSeconds(60));
        assertEquals(0, order.info().holders().size());
    }

    @Test
    void replicas() {
        FencedLock payments = client.lock("payments", LockOptions.defaults().replicas(1));
        assertEquals(0, assertThrows(NotReplicatedException.class, payments::tryLock).had());
    }

    @Test
    void without_a_server() throws InterruptedException {
        try (MemoryServer server = new MemoryServer()) {
            Guard guard = server.client().lock("k", LockOptions.defaults().fixedLease()).acquire();
            server.advance(Duration.ofSeconds(30));
            System.out.println("lost: " + guard.lostReason());
        }
    }

    @Test
    void others() throws InterruptedException {
        FencedReadWriteLock catalogue = client.readWriteLock("catalogue");
        catalogue.readLock().lock();
        catalogue.readLock().unlock();
        try (Guard writer = catalogue.writeLock().acquire()) {
            System.out.println("one writer, token " + writer.token());
        }

        LockSemaphore downloads = client.semaphore("downloads", LockOptions.defaults().limit(5));
        try (Permit permit = downloads.acquire()) {
            System.out.println("one of five, for another " + permit.validFor());
        }

        try (Permit three = downloads.count(3).acquire()) {
            System.out.println(three.count() + " of five, all or none");
        }

        Latch start = client.latch("start");
        start.set(1);
        start.countDown();
        System.out.println("open: " + start.awaitWithin(Duration.ofSeconds(1)));

        MultiLock transfer = client.multiLock(client.lock("account:1"), client.lock("account:2"));
        try (MultiGuard both = transfer.acquire()) {
            System.out.println("both held, tokens " + both.tokens());
        }
        assertEquals(6, client.statistics().acquisitions());
    }
}
