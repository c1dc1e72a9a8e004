package redislock;

import java.time.Duration;

/**
 * Receives durations from a {@link LockClient}, for timers. It is called on the client's executor, never on a thread of
 * the transport, and not in order.
 */
public interface LockObserver {
    /**
     * An acquisition that waited in the server's queue was granted. A {@link MultiLock} calls it for each of its
     * requests.
     *
     * @param wait since the acquisition began
     */
    default void waited(Duration wait) {}

    /**
     * A lock or permit that was still held was released. Lost holds, and those of {@link Guard#leave(Duration)}, are
     * not reported.
     *
     * @param hold from the grant to the call that released it
     */
    default void held(Duration hold) {}
}
