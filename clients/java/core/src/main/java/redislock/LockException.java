package redislock;

/**
 * A request failed. A lock that another owner holds is not an error. The transport's exception, where there is
 * one, is the {@linkplain #getCause() cause}. No message names a user, a password or an owner.
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
        super(server.isEmpty() ? message : server + ": " + message, cause);
        this.server = server;
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
