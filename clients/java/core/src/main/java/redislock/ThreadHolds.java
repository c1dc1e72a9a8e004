package redislock;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.jspecify.annotations.Nullable;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Hold;

/**
 * The holds of threads: which thread holds which key how often, for all lock objects of a client. A hold that is
 * released otherwise, by its guard or the end of its client, or left to its lease, is no longer one of its thread.
 */
final class ThreadHolds {
    private final ConcurrentMap<Name, Counted> holds = new ConcurrentHashMap<>();
    private final Engine engine;

    /** What is held, and by which thread. */
    private record Name(ByteBuffer key, Mode mode, long thread) {}

    /** A hold and how often its thread has acquired it. Only that thread changes it. */
    static final class Counted {
        final Hold hold;
        private final Name name;
        private int count = 1;

        private Counted(Hold hold, Name name) {
            this.hold = hold;
            this.name = name;
        }
    }

    ThreadHolds(Engine engine) {
        this.engine = engine;
    }

    /** The owner of the calling thread, in the form of Redisson. */
    byte[] owner() {
        return (engine.id() + ":" + threadId()).getBytes(StandardCharsets.US_ASCII);
    }

    /** The number of a virtual thread is as unique as that of any other. (Its later name, threadId, is of Java 19.) */
    @SuppressWarnings("deprecation")
    private static long threadId() {
        return Thread.currentThread().getId();
    }

    private static Name name(ByteBuffer key, Mode mode) {
        return new Name(key, mode, threadId());
    }

    /** The hold of the calling thread, or null. */
    @Nullable Counted get(ByteBuffer key, Mode mode) {
        return holds.get(name(key, mode));
    }

    /**
     * The hold of the calling thread.
     *
     * @param attempt what the thread attempts, for the message
     * @throws IllegalMonitorStateException when it has none
     */
    Counted own(ByteBuffer key, Mode mode, String attempt) {
        Counted own = get(key, mode);
        if (own == null) {
            throw notHeld(key, attempt);
        }
        return own;
    }

    static IllegalMonitorStateException notHeld(ByteBuffer key, String attempt) {
        return new IllegalMonitorStateException("attempt to " + attempt + " lock, not locked by current thread: "
                + StandardCharsets.UTF_8.decode(key.duplicate()));
    }

    /** How often the calling thread holds it. */
    int count(ByteBuffer key, Mode mode) {
        Counted own = get(key, mode);
        return own == null ? 0 : own.count;
    }

    /** Whether the calling thread holds it in another mode. */
    boolean hasOtherMode(ByteBuffer key, Mode mode) {
        for (Mode other : Mode.values()) {
            if (other != mode && get(key, other) != null) {
                return true;
            }
        }
        return false;
    }

    void put(ByteBuffer key, Mode mode, Hold hold) {
        Name name = name(key, mode);
        Counted own = new Counted(hold, name);
        holds.put(name, own);
        hold.keptBy(Thread.currentThread(), () -> holds.remove(name, own));
    }

    /**
     * Counts a further hold of the calling thread: the hold, or null when it has none.
     *
     * @throws LockLostException when its hold is lost
     */
    @Nullable Hold reenter(ByteBuffer key, Mode mode) {
        Counted own = get(key, mode);
        if (own == null) {
            return null;
        }
        Lost loss = own.hold.loss();
        if (loss != null) {
            throw new LockLostException(loss + "; unlock it before it is acquired again", loss);
        }
        if (own.count == Integer.MAX_VALUE) {
            throw new IllegalMonitorStateException("the hold count is at its maximum");
        }
        own.count++;
        return own.hold;
    }

    /** Ends a hold of the calling thread, if it has one: the hold to be released when it was the outermost one,
     * otherwise null. */
    @Nullable Hold leave(ByteBuffer key, Mode mode) {
        Counted own = get(key, mode);
        if (own == null || --own.count > 0) {
            return null;
        }
        holds.remove(own.name, own);
        return own.hold;
    }
}
