package redislock;

/**
 * Nobody has created the semaphore: {@link LockSemaphore#set(int)} and {@link LockOptions#limit(int)} do so. A user
 * without the permission {@code +exists} gets no such error, and waits.
 */
public class NoSemaphoreException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * The error.
     *
     * @param server the server's name
     * @param name   the key as text
     */
    public NoSemaphoreException(String server, String name) {
        super(server, "there is no semaphore " + name + ": create it with set(), or with the option limit", null);
    }
}
