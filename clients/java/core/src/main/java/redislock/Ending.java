package redislock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Hold;

/**
 * The release of several locks at the same time. Each answer is awaited for the response timeout of its client; the
 * release goes on in the background after that.
 */
final class Ending {
    private final List<Hold> notHeld = new ArrayList<>();
    private @Nullable RuntimeException failure;

    /** Releases the locks, and waits for the answers. */
    Ending(List<Hold> holds) {
        long begin = Clock.now();
        List<CompletableFuture<Released>> releases = holds.stream().map(hold -> hold.startRelease(false)).toList();
        for (int i = 0; i < releases.size(); i++) {
            Hold hold = holds.get(i);
            try {
                long until = Clock.plus(begin, hold.engine().network().patience());
                if (hold.awaitRelease(releases.get(i), until) == Released.NOT_HELD) {
                    notHeld.add(hold);
                }
            } catch (RuntimeException error) {
                failure = error;
            }
        }
    }

    /** The locks that were no longer held. */
    List<Hold> notHeld() {
        return notHeld;
    }

    /** Throws the error of a lock that could not be released, if there is one. */
    void throwFailure() {
        if (failure != null) {
            throw failure;
        }
    }
}
