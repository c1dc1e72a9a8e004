package redislock;

/** One side does not accept the other's TLS certificate; repeating the request does not help. */
public class UntrustedException extends LockException {
    private static final long serialVersionUID = 1;

    /**
     * A certificate that was not accepted.
     *
     * @param server the server's name, {@code host:port}
     * @param cause  the error of TLS
     */
    public UntrustedException(String server, Throwable cause) {
        super(server, "the certificate is not believed", cause);
    }
}
