package redislock;

/** The result of a release. */
public enum Released {
    /** The lock was still held, and is now free or granted to the next waiter. */
    YES,
    /** The lock was no longer held by this holder. */
    NOT_HELD
}
