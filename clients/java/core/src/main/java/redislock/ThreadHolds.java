package redislock;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import redislock.internal.lock.Hold;
import redislock.internal.lock.Terms;

/**
 * The holds of a lock by threads: which thread holds it how often, for all lock objects of a client. A hold that is
 * released otherwise, by its guard or the end of its client, or left to its lease, is no longer one of its thread.
 */
final class ThreadHolds {
    /** Those of the whole client. */
    private final Map<Name, Counted> all;
    private final Terms terms;
    private final ByteBuffer key;

    /** What is held, and by which thread. */
    record Name(ByteBuffer key, Mode mode, long thread) {}

    /** A hold and how often its thread has acquired it. Only that thread changes it. */
    static final class Counted {
        final Hold hold;
        private int count = 1;

        private Counted(Hold hold) {
            this.hold = hold;
        }
    }

    ThreadHolds(Map<Name, Counted> all, Terms terms) {
        this.all = all;
        this.terms = terms;
        this.key = ByteBuffer.wrap(terms.key());
    }

    /** The owner of the calling thread, in the form of Redisson. */
    byte[] owner() {
        return (terms.engine().id() + ":" + threadId()).getBytes(StandardCharsets.US_ASCII);
    }

    /** The number of a virtual thread is as unique as that of any other. (Its later name, threadId, is of Java 19.) */
    @SuppressWarnings("deprecation")
    private static long threadId() {
        return Thread.currentThread().getId();
    }

    private Name name(Mode mode) {
        return new Name(key, mode, threadId());
    }

    /** The hold of the calling thread, or null. */
    @Nullable Counted get() {
        return all.get(name(terms.mode()));
    }

    /**
     * The hold of the calling thread.
     *
     * @param attempt what the thread attempts, for the message
     * @throws IllegalMonitorStateException when it has none
     */
    Hold own(String attempt) {
        Counted own = get();
        if (own == null) {
            throw notHeld(attempt);
        }
        return own.hold;
    }

    IllegalMonitorStateException notHeld(String attempt) {
        return new IllegalMonitorStateException("attempt to " + attempt + " lock, not locked by current thread: "
                + StandardCharsets.UTF_8.decode(key.duplicate()));
    }

    /** How often the calling thread holds it. */
    int count() {
        Counted own = get();
        return own == null ? 0 : own.count;
    }

    /** Whether the calling thread holds it in another mode. */
    boolean hasOtherMode() {
        for (Mode other : Mode.values()) {
            if (other != terms.mode() && all.containsKey(name(other))) {
                return true;
            }
        }
        return false;
    }

    void put(Hold hold) {
        Name name = name(terms.mode());
        Counted own = new Counted(hold);
        all.put(name, own);
        hold.keptBy(Thread.currentThread(), () -> all.remove(name, own));
    }

    /**
     * Counts a further hold of the calling thread: the hold, or null when it has none.
     *
     * @throws LockLostException when its hold is lost
     */
    @Nullable Hold reenter() {
        Counted own = get();
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
    @Nullable Hold leave() {
        Counted own = get();
        if (own == null || --own.count > 0) {
            return null;
        }
        all.remove(name(terms.mode()), own);
        return own.hold;
    }
}
