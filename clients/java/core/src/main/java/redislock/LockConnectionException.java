package redislock;

import org.jspecify.annotations.Nullable;

/** The server cannot be reached, or did not answer in time. */
public class LockConnectionException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * A failure of a connection.
     *
     * @param server  the server's name, {@code host:port}
     * @param message what happened to the connection
     * @param cause   the exception of the transport, or null
     */
    public LockConnectionException(String server, String message, @Nullable Throwable cause) {
        super(server, message, cause);
    }

    @Override
    public boolean isPassing() {
        return true;
    }
}
