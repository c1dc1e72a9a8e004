package redislock;

/**
 * A request failed. A lock that another owner holds is not an error. A method that waits throws an exception with the
 * stack of its caller. The {@linkplain #getCause() cause} is that of the transport, where there is one. No message
 * names a user, a password or an owner.
 */
public class LockException extends RuntimeException {
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
    public LockException(String server, String message, Throwable cause) {
        super(server.isEmpty() ? message : server + ": " + message);
        this.server = server;
        if (cause != null) {
            initCause(cause);
        }
    }

    /**
     * The same error for the calling thread to throw.
     *
     * @return an exception of the same class, text and cause, with the stack of the calling thread
     */
    public LockException inThisThread() {
        return new LockException(server, detail(), getCause());
    }

    /** The message without the server's name. */
    String detail() {
        return server.isEmpty() ? getMessage() : getMessage().substring(server.length() + 2);
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
