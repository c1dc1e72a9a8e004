package redislock.spring;

import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.springframework.integration.support.locks.DistributedLock;
import redislock.LockClient;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** A server, a client and a registry with the prefix {@code reg}, for one test. */
final class Registries implements AutoCloseable {
    final TestServer server = TestServer.start();
    /** The response timeout is the subject of no test that has this client. */
    final LockClient client = patient(server.address());
    final FencedLockRegistry registry = new FencedLockRegistry(client, "reg");

    static LockClient patient(String address) {
        return LockClient.builder(address).responseTimeout(Duration.ofMinutes(1)).build();
    }

    /** Another registry with the same prefix and client. */
    FencedLockRegistry other() {
        return new FencedLockRegistry(client, "reg");
    }

    /** The same with this lease in milliseconds. */
    FencedLockRegistry other(long lease) {
        return new FencedLockRegistry(client, "reg", lease);
    }

    /** The rest of the lease of the lock {@code foo} in milliseconds; -2 when nothing holds it. */
    long leaseLeft() {
        Object owner = server.line("LOCK.INFO reg:foo");
        return owner == null ? -2 : (Long) server.line("PTTL reg:foo");
    }

    void awaitEndOfLease() {
        Waiting.waitFor("the end of the lease", () -> leaseLeft() == -2);
    }

    /** Runs the task in another thread and returns its result, or throws its exception. */
    static <T> T elsewhere(Callable<T> task) throws Exception {
        CompletableFuture<T> result = new CompletableFuture<>();
        inThread(() -> complete(result, task));
        try {
            return result.get(Waiting.PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    /** Starts a daemon thread. */
    static Thread inThread(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Whether another thread gets the lock at once; it unlocks it. */
    static boolean isFree(DistributedLock lock) throws Exception {
        return elsewhere(() -> {
            boolean isFree = lock.tryLock();
            if (isFree) {
                lock.unlock();
            }
            return isFree;
        });
    }

    @Override
    public void close() {
        try (server) {
            client.close();
        }
    }

    private static <T> void complete(CompletableFuture<T> result, Callable<T> task) {
        try {
            result.complete(task.call());
        } catch (Throwable e) {
            result.completeExceptionally(e);
        }
    }
}
