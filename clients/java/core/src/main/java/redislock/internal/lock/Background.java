package redislock.internal.lock;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import redislock.Unreleased;

/** Counts the work of a client after its callers have returned (withdrawals of waits, releases), and keeps failures. */
public final class Background {
    /** Upper bound of failures kept until they are read. */
    private static final int REMEMBERED = 1_000;

    private final Deque<Unreleased> failed = new ArrayDeque<>();
    private int running;
    private CompletableFuture<Void> settled = CompletableFuture.completedFuture(null);

    /** Counts a piece of work until {@link #end}. */
    synchronized void begin() {
        if (running++ == 0) {
            settled = new CompletableFuture<>();
        }
    }

    void end() {
        CompletableFuture<Void> done = null;
        synchronized (this) {
            if (--running == 0) {
                done = settled;
            }
        }
        if (done != null) {
            done.complete(null);
        }
    }

    /** Records a lock that could not be released. */
    synchronized void fail(Claim claim, RuntimeException error) {
        if (failed.size() >= REMEMBERED) {
            failed.removeFirst();
        }
        failed.add(new Unreleased(claim.key().clone(), claim.owner().clone(), error));
    }

    /** Completes when nothing is running. (No copy: copies of a busy client would be kept until it rests.) */
    public synchronized CompletableFuture<Void> settled() {
        return settled;
    }

    /** The failures since the last call. */
    public synchronized List<Unreleased> failures() {
        List<Unreleased> all = new ArrayList<>(failed);
        failed.clear();
        return all;
    }
}
