package redislock;

import org.jspecify.annotations.Nullable;

/**
 * The hold of this thread was lost before it was released: another owner may have had the lock meanwhile. Thrown by
 * {@code unlock()}, and by an attempt to re-enter the lock.
 */
public class LockLostException extends IllegalMonitorStateException {
    private static final long serialVersionUID = 1;

    /** Null where the server answered the release that nothing was held. */
    private final transient @Nullable Lost lost;

    /**
     * A lost hold.
     *
     * @param message the message
     * @param lost    the loss, or null where only the answer to the release has shown it
     */
    public LockLostException(String message, @Nullable Lost lost) {
        super(message);
        this.lost = lost;
    }

    /**
     * The loss that was reported.
     *
     * @return the loss, or null where only the server's answer to the release has shown it
     */
    public @Nullable Lost lost() {
        return lost;
    }
}
