package redislock;

/** The {@link LockClient} is closed. */
public class LockClosedException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    /**
     * A call on a closed client.
     *
     * @param message with the client's name
     */
    public LockClosedException(String message) {
        super(message);
    }
}
