package redislock;

import org.jspecify.annotations.Nullable;

/**
 * A request failed. A lock that another owner holds is not an error. A method that waits throws an exception with the
 * stack of its caller. The {@linkplain #getCause() cause} is that of the transport, where there is one. No message
 * names a user, a password or an owner.
 */
public class LockException extends RuntimeException implements Cloneable {
    private static final long serialVersionUID = 1;

    /** The server's name; empty where no server is concerned. */
    private final String server;

    /**
     * An error of a request.
     *
     * @param server  the server's name, {@code host:port}
     * @param message the message, without the server's name
     * @param cause   the exception of the transport, or null
     */
    public LockException(String server, String message, @Nullable Throwable cause) {
        super(server.isEmpty() ? message : server + ": " + message, cause);
        this.server = server;
    }

    /**
     * The same error for the calling thread to throw.
     *
     * @return a copy with the stack of the calling thread
     */
    public LockException inThisThread() {
        try {
            LockException copy = (LockException) clone();
            copy.fillInStackTrace();
            return copy;
        } catch (CloneNotSupportedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * The server that is concerned.
     *
     * @return {@code host:port}
     */
    public String server() {
        return server;
    }

    /**
     * Whether the same request may be served when it is repeated later.
     *
     * @return true after a failure of the connection, and after a refusal that passes, such as {@code LOADING}
     */
    public boolean isPassing() {
        return false;
    }
}
