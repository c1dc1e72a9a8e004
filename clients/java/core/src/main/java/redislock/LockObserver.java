package redislock;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Receives what happens to the locks and permits of a {@link LockClient}, for metrics and traces. It is called on the
 * client's executor, never on a thread of the transport or the one that renews, and not in order: of one lock, too, an
 * event may come before an earlier one. An exception is logged, as a warning of the logger {@code redislock}.
 */
public interface LockObserver {
    /**
     * What an event is about. It has no owner.
     *
     * @param name the key as text; bytes that are not UTF-8 are replaced
     * @param kind {@code exclusive}, {@code read}, {@code write} or {@code semaphore}
     * @param id   of the acquisition, the same in all its events
     */
    record Subject(String name, String kind, long id) {}

    /**
     * An acquisition has begun. One of several locks in one request calls it for each of them. A re-entry is none.
     *
     * @param lock the lock
     */
    default void asked(Subject lock) {}

    /**
     * The acquisition has ended. It is called once for each {@link #asked}.
     *
     * @param lock    the lock
     * @param granted whether it was granted
     * @param waited  the time since it began
     * @param error   the error that has ended it, or null
     */
    default void answered(Subject lock, boolean granted, Duration waited, @Nullable RuntimeException error) {}

    /**
     * A hold that was not reported as lost was released, or left to its lease. The server has perhaps not answered yet.
     *
     * @param lock the lock
     * @param held the time since the grant
     */
    default void released(Subject lock, Duration held) {}

    /**
     * A hold was lost.
     *
     * @param lock   the lock
     * @param reason why
     */
    default void lost(Subject lock, LostReason reason) {}

    /**
     * A renewal was not confirmed a third of the lease after it was due. It is called once until one is confirmed.
     *
     * @param lock the lock
     * @param by   the time since it was due
     */
    default void late(Subject lock, Duration by) {}
}
