package redislock.internal.lock;

import io.netty.util.concurrent.EventExecutor;
import io.netty.util.internal.ThreadExecutorMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import redislock.LockClosedException;
import redislock.LockException;

/** Threads that wait for futures. A virtual thread waits without its carrier: no monitor is held here. */
public final class Blocking {
    private Blocking() {
    }

    /**
     * Fails on a thread of the transport: while it waits, no reply can be read.
     *
     * @throws IllegalStateException on an event loop
     */
    public static void check() {
        EventExecutor executor = ThreadExecutorMap.currentExecutor();
        if (executor != null && executor.inEventLoop()
                && Thread.currentThread().getName().startsWith("lettuce-")) {
            throw new IllegalStateException(
                    "this thread serves connections and must not wait for a reply: use another executor");
        }
    }

    /** The same for a wait that an interruption ends. */
    public static void checkInterruptibly() throws InterruptedException {
        check();
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    /** Waits for the value. An interruption does not end the wait: the flag of the thread is set again at its end. */
    public static <T> T get(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException failed) {
            throw thrown(failed.getCause());
        }
    }

    /** Waits for the value. */
    public static <T> T getInterruptibly(CompletableFuture<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException failed) {
            throw thrown(failed.getCause());
        }
    }

    /** Waits for the end of something, at most this long, also when this thread is interrupted. */
    public static void await(CompletableFuture<?> future, long nanos) {
        long end = System.nanoTime() + nanos;
        boolean isInterrupted = false;
        while (true) {
            try {
                future.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
                break;
            } catch (InterruptedException later) {
                isInterrupted = true;
            } catch (ExecutionException | TimeoutException over) {
                break;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The exception with the stack of the calling thread. */
    private static RuntimeException thrown(Throwable received) {
        if (received instanceof LockException known) {
            return known.inThisThread();
        }
        if (received instanceof LockClosedException) {
            return new LockClosedException(received.getMessage());
        }
        return new IllegalStateException(received);
    }
}
