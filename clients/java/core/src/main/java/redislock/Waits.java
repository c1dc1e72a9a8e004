package redislock;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Acquisition;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;

/** Acquisitions of one hold, by a thread that waits or by a future. */
final class Waits {
    /** How long an interrupted thread waits for the answer to the withdrawal of its wait. */
    private static final long WITHDRAWAL = 250 * Clock.MILLI;

    private Waits() {
    }

    /** The hold, or null. An interruption does not end the wait. */
    static @Nullable Hold acquire(Terms terms, long end) {
        Blocking.check();
        return only(Blocking.get(Acquisition.start(List.of(terms), end).result()));
    }

    /** The hold, or null. An interruption withdraws the wait; a grant that was quicker is given back. */
    static @Nullable Hold acquireInterruptibly(Terms terms, long end) throws InterruptedException {
        Blocking.checkInterruptibly();
        Acquisition acquisition = Acquisition.start(List.of(terms), end);
        try {
            return only(Blocking.getInterruptibly(acquisition.result()));
        } catch (InterruptedException interrupted) {
            withdraw(acquisition);
            throw interrupted;
        }
    }

    /** Withdraws an acquisition, and waits a moment for the answer. */
    static void withdraw(Acquisition acquisition) {
        acquisition.cancel();
        Blocking.await(acquisition.undone(), WITHDRAWAL);
    }

    /** The same as a future of the program. Cancelling or completing it otherwise withdraws the wait. */
    static <T> CompletableFuture<Optional<T>> async(Terms terms, long end, Function<Hold, T> as) {
        Engine engine = terms.engine();
        Acquisition acquisition = Acquisition.start(List.of(terms), end);
        CompletableFuture<Optional<T>> future = new CompletableFuture<>();
        // Whether the result is passed on to the future, or the future is completed otherwise.
        AtomicBoolean isDecided = new AtomicBoolean();
        future.whenComplete((granted, error) -> {
            if (isDecided.compareAndSet(false, true)) {
                acquisition.cancel();
            }
        });
        acquisition.result().whenComplete((holds, error) -> engine.complete(() -> {
            if (!isDecided.compareAndSet(false, true)) {
                return;
            }
            if (error != null) {
                future.completeExceptionally(error);
            } else if (holds == null) {
                future.complete(Optional.empty());
            } else if (!future.complete(Optional.of(as.apply(only(holds))))) {
                holds.forEach(Hold::releaseInBackground);
            }
        }));
        return future;
    }

    private static @Nullable Hold only(@Nullable List<Hold> holds) {
        return holds == null ? null : holds.get(0);
    }
}
