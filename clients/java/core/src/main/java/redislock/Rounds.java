package redislock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.Pause;
import redislock.internal.lock.Acquisition;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;
import redislock.internal.net.Errors;

/**
 * The acquisition of several locks, all or none, in the calling thread.
 *
 * <p>The locks of one client that agree are one request. The requests follow in the order of servers and keys, so that
 * two acquisitions of the same locks never wait for each other. The wait for the first one holds nothing. From its
 * grant on, a round lasts 1.5 s for each lock: if it is not complete by then, all its locks are released, because other
 * owners may want some of them. Locks that are held already are renewed meanwhile; if one is lost the round is over.
 */
final class Rounds {
    /** The duration of a round for each of its locks, the value of Redisson. */
    private static final long ROUND_PER_LOCK = 1_500 * Clock.MILLI;
    /** The longest wait for the replies to releases. */
    private static final long GRACE = 500 * Clock.MILLI;
    /** How often another acquisition may wait for a lock of this one, and be waited for, before that is an error. */
    private static final int MOST_DEADLOCKS = 10;
    private static final long FIRST_PAUSE = 10 * Clock.MILLI;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLI;

    /** In the caller's order. */
    private final List<Terms> terms;
    /** In the order on which all programs agree, those together that are acquired in one request. */
    private final List<List<Terms>> requests = new ArrayList<>();
    private final long end;
    private final boolean isInterruptible;
    private int deadlocks;
    /** The end of the present round, once its first request is granted. */
    private long until;

    Rounds(List<Terms> terms, long end, boolean isInterruptible) {
        this.terms = terms;
        this.end = end;
        this.isInterruptible = isInterruptible;
        List<Terms> rest = terms.stream()
                .sorted(Comparator.<Terms, String>comparing(each -> each.engine().network().name())
                        .thenComparing(Terms::key, Arrays::compareUnsigned)).toList();
        while (!rest.isEmpty()) {
            Terms first = rest.get(0);
            List<Terms> ofClient = rest.stream().takeWhile(each -> each.engine() == first.engine()).toList();
            if (ofClient.stream().allMatch(first::agreesWith)) {
                requests.add(ofClient);
            } else {
                ofClient.forEach(each -> requests.add(List.of(each)));
            }
            rest = rest.subList(ofClient.size(), rest.size());
        }
    }

    /** The holds in the caller's order; null when they were not all granted in time. */
    @Nullable List<Hold> run() throws InterruptedException {
        long pause = FIRST_PAUSE;
        @Nullable RuntimeException failure = null;
        while (true) {
            try {
                List<Hold> holds = round();
                if (holds != null) {
                    return holds;
                }
                failure = null;
            } catch (RuntimeException error) {
                // A request is repeated for as long as that is of use, so its error is final; only one that the end of
                // the round has cut off has another attempt.
                boolean isCutOff = until < end && Clock.now() >= until;
                if (!Errors.isPassing(error) || !isCutOff || failure != null) {
                    throw error;
                }
                failure = error;
            }
            if (Clock.now() >= end) {
                if (failure != null) {
                    throw failure;
                }
                return null;
            }
            long rest = Math.min(Pause.partOf(pause), Clock.left(end));
            pause = Math.min(pause * 2, LONGEST_PAUSE);
            get(new CompletableFuture<Void>().completeOnTimeout(null, rest, TimeUnit.NANOSECONDS));
        }
    }

    private <T> T get(CompletableFuture<T> future) throws InterruptedException {
        return isInterruptible ? Blocking.getInterruptibly(future) : Blocking.get(future);
    }

    private @Nullable List<Hold> round() throws InterruptedException {
        Map<Terms, Hold> held = new IdentityHashMap<>();
        boolean isComplete = false;
        until = end;
        try {
            for (List<Terms> request : requests) {
                List<Hold> granted = acquire(request, held.values());
                if (granted == null) {
                    return null;
                }
                if (held.isEmpty()) {
                    until = Math.min(end, Clock.now() + ROUND_PER_LOCK * terms.size());
                }
                for (int i = 0; i < granted.size(); i++) {
                    held.put(request.get(i), granted.get(i));
                }
            }
            isComplete = held.values().stream().allMatch(hold -> hold.loss() == null && !hold.validFor().isZero());
            return isComplete ? terms.stream().map(held::get).toList() : null;
        } finally {
            if (!isComplete) {
                giveBack(held.values());
            }
        }
    }

    /** Acquires the locks of a request, unless one of those that are held is lost meanwhile. */
    private @Nullable List<Hold> acquire(List<Terms> request, Collection<Hold> held) throws InterruptedException {
        Acquisition acquisition = Acquisition.start(request, until);
        try {
            if (!held.isEmpty()) {
                Stream<CompletableFuture<?>> lost = held.stream().map(Hold::lost);
                Stream<CompletableFuture<?>> result = Stream.of(acquisition.result().handle((holds, error) -> 0));
                get(CompletableFuture.anyOf(Stream.concat(result, lost).toArray(CompletableFuture<?>[]::new)));
                if (held.stream().anyMatch(hold -> hold.loss() != null)) {
                    Waits.withdraw(acquisition);
                    return null;
                }
            }
            return get(acquisition.result());
        } catch (DeadlockException refused) {
            // A request for several keys may wait for one that is held here, and be the next at this one: the round
            // gives way. Locks that the thread holds otherwise stay held, so it does not do so for ever.
            if (held.isEmpty() || ++deadlocks > MOST_DEADLOCKS) {
                throw refused;
            }
            return null;
        } catch (InterruptedException interrupted) {
            Waits.withdraw(acquisition);
            throw interrupted;
        }
    }

    /** Releases all of them, and waits a moment for the replies. */
    private void giveBack(Collection<Hold> holds) {
        CompletableFuture<?>[] releases =
                holds.stream().map(Hold::releaseInBackground).toArray(CompletableFuture<?>[]::new);
        Blocking.await(CompletableFuture.allOf(releases), GRACE);
    }
}
