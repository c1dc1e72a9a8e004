package redislock.internal.lock;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import redislock.Unreleased;

/** Counts the work of a client after its callers have returned (withdrawals of waits, releases), and keeps failures. */
public final class Background {
    /** Upper bound of failures kept until they are read. */
    private static final int REMEMBERED = 1_000;

    private final ReentrantLock lock = new ReentrantLock();
    private final Deque<Unreleased> failed = new ArrayDeque<>();
    private int running;
    private CompletableFuture<Void> settled = CompletableFuture.completedFuture(null);

    /** Counts a piece of work until {@link #end}. */
    void begin() {
        lock.lock();
        try {
            if (running++ == 0) {
                settled = new CompletableFuture<>();
            }
        } finally {
            lock.unlock();
        }
    }

    void end() {
        CompletableFuture<Void> done = null;
        lock.lock();
        try {
            if (--running == 0) {
                done = settled;
            }
        } finally {
            lock.unlock();
        }
        if (done != null) {
            done.complete(null);
        }
    }

    /** Records a lock that could not be released. */
    void fail(Claim claim, RuntimeException error) {
        lock.lock();
        try {
            if (failed.size() >= REMEMBERED) {
                failed.removeFirst();
            }
            failed.add(new Unreleased(claim.key().clone(), claim.owner().clone(), error));
        } finally {
            lock.unlock();
        }
    }

    /** Completes when nothing is running. (No copy: copies of a busy client would be kept until it rests.) */
    public CompletableFuture<Void> settled() {
        lock.lock();
        try {
            return settled;
        } finally {
            lock.unlock();
        }
    }

    /** The failures since the last call. */
    public List<Unreleased> failures() {
        lock.lock();
        try {
            List<Unreleased> all = new ArrayList<>(failed);
            failed.clear();
            return all;
        } finally {
            lock.unlock();
        }
    }
}
