package redislock;

/** The {@link LockClient} is closed. */
public class LockClosedException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    /**
     * A call on a closed client.
     *
     * @param server the client's name
     */
    public LockClosedException(String server) {
        super(server + ": the client is closed");
    }

    private LockClosedException(LockClosedException received) {
        super(received.getMessage());
    }

    /**
     * The same error for the calling thread to throw.
     *
     * @return an exception with the same text and the stack of the calling thread
     */
    public LockClosedException inThisThread() {
        return new LockClosedException(this);
    }
}
