package redislock;

import org.jspecify.annotations.Nullable;

/**
 * The request was sent and got no reply: it may have been served, or may be served soon. It was not repeated, because
 * it must not be served twice; see {@link Latch#countDown(long)}.
 */
public class UnheardException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * A request whose outcome is unknown.
     *
     * @param server  the server's name, {@code host:port}
     * @param message what happened to the connection
     * @param cause   the exception of the transport, or null
     */
    public UnheardException(String server, String message, @Nullable Throwable cause) {
        super(server, message + "; the request may have been served", cause);
    }
}
