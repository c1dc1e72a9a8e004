package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import redislock.internal.Loop;

/**
 * What named owners, threads among them, may have at the server without wanting it: a hold whose release has no answer
 * yet, or the hold or wait of a request that was given up and may still be served.
 *
 * <p>The server cannot distinguish this from a wanted hold. If another owner waits for it, and holds the key that its
 * owner asks for next, the server sees a deadlock, of which the program knows nothing. So the next acquisition of the
 * owner lets a release that is being repeated go first, and after a refusal it asks once more when these parts are
 * settled.
 */
final class Unsettled {
    private final Loop loop;
    private final Map<ByteBuffer, Set<Part>> parts = new ConcurrentHashMap<>();

    /** Something unsettled. */
    interface Part {
        byte[] owner();

        /** Repeats a failed release at once, on the client's thread. The future completes when that attempt is answered
         * or fails; null: no release waits to be repeated. */
        CompletableFuture<?> hurry();

        /** The same. The future completes when the release is answered, or none is needed. */
        CompletableFuture<?> settle();
    }

    Unsettled(Loop loop) {
        this.loop = loop;
    }

    void add(Part part) {
        parts.compute(ByteBuffer.wrap(part.owner()), (owner, present) -> {
            Set<Part> all = present != null ? present : ConcurrentHashMap.newKeySet();
            all.add(part);
            return all;
        });
    }

    void remove(Part part) {
        parts.computeIfPresent(ByteBuffer.wrap(part.owner()), (owner, present) -> {
            present.remove(part);
            return present.isEmpty() ? null : present;
        });
    }

    /** Whether the owner has a part. */
    boolean has(byte[] owner) {
        return parts.containsKey(ByteBuffer.wrap(owner));
    }

    /** Hurries or settles all parts of an owner, for at most this long; then runs this. On the client's thread. */
    void await(byte[] owner, Function<Part, CompletableFuture<?>> way, long longest, Runnable then) {
        Set<Part> present = parts.getOrDefault(ByteBuffer.wrap(owner), Set.of());
        CompletableFuture<?>[] settling =
                present.stream().map(way).filter(Objects::nonNull).toArray(CompletableFuture<?>[]::new);
        if (settling.length == 0) {
            then.run();
            return;
        }
        CompletableFuture<Void> over = CompletableFuture.allOf(settling);
        Loop.Timer timer = loop.after(longest, () -> over.complete(null));
        over.whenComplete((unused, error) -> {
            timer.cancel();
            loop.execute(then);
        });
    }
}
