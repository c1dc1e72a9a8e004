package redislock;

/** Why a lock is no longer held. */
public enum LostReason {
    /**
     * The server reports that this grant is over: it was broken or deleted, its lease ran out, or the server lost its
     * data.
     */
    TAKEN("the server says that the grant is over"),
    /**
     * No renewal was confirmed until the {@linkplain LockOptions#margin() margin} before the end of the lease: the
     * server could not be reached, or this program was paused; or the lease is {@linkplain LockOptions#fixedLease()
     * fixed} and ends. Until the end of the lease this holder still has the lock.
     */
    UNCONFIRMED("its lease is about to end, and no renewal was confirmed"),
    /**
     * The server refuses renewals: the key holds other data ({@code WRONGTYPE}, {@code LOCKTYPE}), the user lacks the
     * permission ({@code NOPERM}, {@code NOAUTH}, {@code WRONGPASS}), or a single server is a replica
     * ({@code READONLY}).
     */
    REFUSED("the server does not renew it"),
    /** The connection to which the hold was bound has ended ({@link LockOptions#session()}). */
    DISCONNECTED("the connection to which it was bound has ended");

    private final String text;

    LostReason(String text) {
        this.text = text;
    }

    /** The reason as part of a sentence. */
    @Override
    public String toString() {
        return text;
    }
}
