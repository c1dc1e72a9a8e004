package redislock;

/**
 * A permit of a {@link LockSemaphore} that is held; it is renewed and lost as a lock is. Its {@link #token()} is no
 * fencing token, because several permits are valid at a time.
 */
public interface Permit extends Guard {
    /**
     * How many permits of the semaphore it is, see {@link LockOptions#count(int)}.
     *
     * @return the number
     */
    int count();
}
