package redislock.internal.face;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import redislock.Guard;
import redislock.LockLostException;
import redislock.Lost;
import redislock.MultiGuard;
import redislock.Released;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Hold;

/** Locks that are held together. */
final class MultiGuardFace implements MultiGuard {
    private final List<Hold> holds;

    MultiGuardFace(List<Hold> holds) {
        this.holds = holds;
    }

    @Override
    public List<Guard> members() {
        return List.copyOf(holds);
    }

    @Override
    public List<Long> tokens() {
        return holds.stream().map(Hold::token).toList();
    }

    @Override
    public CompletableFuture<Lost> lost() {
        CompletableFuture<Lost> first = new CompletableFuture<>();
        holds.forEach(hold -> hold.lost().thenAccept(first::complete));
        return first;
    }

    @Override
    public Duration validFor() {
        return holds.stream().map(Hold::validFor).min(Duration::compareTo).orElse(Duration.ZERO);
    }

    @Override
    public Released release() {
        Blocking.check();
        Ending ending = new Ending(holds);
        ending.throwFailure();
        return ending.notHeld().isEmpty() ? Released.YES : Released.NOT_HELD;
    }

    @Override
    public void close() {
        Lost loss = null;
        for (Hold hold : holds) {
            Lost known = hold.closeQuietly();
            loss = loss != null ? loss : known;
        }
        if (loss != null) {
            throw new LockLostException(loss.toString(), loss);
        }
    }
}
