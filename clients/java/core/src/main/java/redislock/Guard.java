package redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A lock that is held. It belongs to no thread: any thread may use and release it. It is renewed in the background
 * every third of its lease, unless the lease is {@linkplain LockOptions#fixedLease() fixed}.
 *
 * <p>Every guard has to be released or closed: otherwise it is renewed until its client is closed.
 */
public interface Guard extends AutoCloseable {
    /**
     * The fencing token of this grant: higher than that of every earlier grant of this key. Pass it to the resource
     * that the lock protects, which has to refuse lower ones. (Readers that hold a lock together share one.)
     *
     * @return the token
     */
    long token();

    /**
     * The key of the lock.
     *
     * @return a copy
     */
    byte[] key();

    /**
     * The owner that holds the lock. It is the credential of the hold: do not log it.
     *
     * @return the owner; bytes that are not UTF-8 are replaced
     */
    String owner();

    /**
     * Completes when the lock is lost: when the reply to a renewal reports it, when the connection of a session ends,
     * and at the {@linkplain LockOptions#margin() margin} before the end of the lease when no renewal is confirmed.
     * After a release it never completes. Dependent stages run on the client's executor, never on a thread of the
     * transport. The hold keeps the future of each call: to ask again and again, call {@link #lostReason()}.
     *
     * @return a future of its own for each call
     */
    CompletableFuture<Lost> lost();

    /**
     * The reason of the loss.
     *
     * @return the reason, or null while the lock is held and after a release
     */
    @Nullable LostReason lostReason();

    /**
     * How long the lock is certainly still held: the lease less a millisecond, less the time since the last confirmed
     * request was sent, by the monotonic or the wall clock, whichever shows more. Zero when the server has reported the
     * loss, and after a release. After {@link LostReason#UNCONFIRMED} it is the rest of the lease: the time left to
     * stop.
     *
     * @return the time, zero or more
     */
    Duration validFor();

    /**
     * Sets the lease to this time from now, longer or shorter ({@code LOCK.RENEW}); later renewals in the background
     * use it too. Blocks until the server has answered.
     *
     * @param lease 2 ms to a hundred years
     * @return true when the lock is still held, false when it is lost
     * @throws LockException            when the server could not be reached, or refused
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    boolean renew(Duration lease);

    /**
     * The same as {@link #renew} without blocking. The future completes on the client's executor.
     *
     * @param lease 2 ms to a hundred years
     * @return whether the lock is still held; an error when the server could not be reached within the response
     *     timeout, or refused
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    CompletableFuture<Boolean> renewAsync(Duration lease);

    /**
     * Sets the lease to this time from now and leaves the lock to it: it is no longer renewed, and neither this guard
     * nor the end of its client releases it. Blocks until the server has answered; before that, while a renewal without
     * a reply may still be served, for at most a response timeout.
     *
     * @param lease 2 ms to a hundred years
     * @return true when the lock was still held
     * @throws LockException            when the server could not be reached, or refused; then the guard is unchanged
     * @throws IllegalArgumentException when the lease is out of bounds
     */
    boolean leave(Duration lease);

    /**
     * Replaces the text beside the hold ({@link LockOptions#note(String)}), and renews the lease. Blocks until the
     * server has answered.
     *
     * @param note at most 256 bytes as UTF-8
     * @return true when the lock is still held, false when it is lost
     * @throws LockException            when the server could not be reached, or refused: the lock is not exclusive
     * @throws IllegalArgumentException when the text is longer
     */
    boolean note(String note);

    /**
     * Runs a command of the server if the lock is still held, in one step ({@code LOCK.IF}): a holder that is late
     * changes nothing. A command with a key, in a cluster in the slot of the lock, or {@code PUBLISH}; not for a
     * permit. Blocks until the server has answered.
     *
     * @param command its name and arguments: text, bytes or numbers
     * @return the reply: null, a {@code Long}, a {@code byte[]} (also for a status as {@code OK}), or a {@code List}
     * @throws IllegalArgumentException for an argument of another type, or null
     * @throws LockLostException when the lock is no longer held: nothing has run
     * @throws UnheardException  when the command may have run
     * @throws LockException     when it has not: the server could not be reached, or refused
     */
    @Nullable Object execute(Object... command);

    /**
     * Releases the lock ({@code LOCK.RELEASE}) and waits for the answer, for at most the response timeout. Without an
     * answer the release goes on in the background until the lease is over (of a {@linkplain LockOptions#session()
     * session} for ten minutes), see {@link LockClient#settled(Duration)}. A second call returns the same.
     *
     * @return whether it was still held
     * @throws LockConnectionException when the server did not answer within the response timeout
     * @throws LockException           when the server refused
     */
    Released release();

    /**
     * Releases the lock. The future completes on the client's executor.
     *
     * @return whether it was still held; an error when the server could not be reached until the lease was over (at
     *     least for the response timeout, of a session for ten minutes), or refused
     */
    CompletableFuture<Released> releaseAsync();

    /**
     * Releases the lock in the background, if it is not released; see {@link LockClient#settled(Duration)}. So a
     * try-with-resources statement under which the lock was lost does not end without a word. A loss that only the
     * reply to the release shows is a warning of the logger {@code redislock}.
     *
     * @throws LockLostException the first time, when the lock was reported as lost before
     */
    @Override
    void close();
}
