package redislock;

/** The mode in which a lock is held or requested. */
public enum Mode {
    /** Held by one owner. */
    EXCLUSIVE,
    /** Held by any number of readers together: {@code READ}. */
    READ,
    /** Held by one writer, without readers: {@code WRITE}. */
    WRITE
}
