package redislock.internal.net;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;

/**
 * A value for which requests wait. They get it in the order in which they came, also those that come while it is passed
 * on. (The dependents of a {@link CompletableFuture} run last in, first out.)
 */
final class InOrder<T> {
    private static final System.Logger LOG = System.getLogger("redislock");

    private final ReentrantLock lock = new ReentrantLock();
    private final Deque<BiConsumer<T, Throwable>> waiting = new ArrayDeque<>();
    private T value;
    private Throwable failure;
    /** Whether the value or the failure is known. */
    private boolean isKnown;
    /** Whether nothing waits any more. */
    private volatile boolean isPassedOn;

    /** A value that is known. */
    static <T> InOrder<T> known(T value) {
        InOrder<T> known = new InOrder<>();
        known.complete(value, null);
        return known;
    }

    /** The value of a future. */
    static <T> InOrder<T> from(CompletableFuture<T> future) {
        InOrder<T> awaited = new InOrder<>();
        future.whenComplete(awaited::complete);
        return awaited;
    }

    /** Passes the value or the failure to {@code receiver}, which must not block: in the calling thread if nothing
     * waits, otherwise after those that wait, on the thread that has completed it. */
    void then(BiConsumer<T, Throwable> receiver) {
        lock.lock();
        try {
            if (!isPassedOn) {
                waiting.add(receiver);
                return;
            }
        } finally {
            lock.unlock();
        }
        receiver.accept(value, failure);
    }

    /** Sets the value, or the failure if it is not null. A second call does nothing. */
    void complete(T known, Throwable error) {
        lock.lock();
        try {
            if (isKnown) {
                return;
            }
            isKnown = true;
            value = known;
            failure = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        } finally {
            lock.unlock();
        }
        BiConsumer<T, Throwable> next;
        while ((next = next()) != null) {
            try {
                next.accept(value, failure);
            } catch (RuntimeException | Error defect) {
                LOG.log(System.Logger.Level.ERROR, "a request of the client has failed", defect);
            }
        }
    }

    private BiConsumer<T, Throwable> next() {
        lock.lock();
        try {
            BiConsumer<T, Throwable> next = waiting.poll();
            isPassedOn = next == null;
            return next;
        } finally {
            lock.unlock();
        }
    }

    /** The value if it is known and nothing waits for it, otherwise null. */
    T get() {
        return isPassedOn ? value : null;
    }

    /** Whether this is the value, also while it is passed on. */
    boolean has(T known) {
        lock.lock();
        try {
            return known.equals(value);
        } finally {
            lock.unlock();
        }
    }
}
