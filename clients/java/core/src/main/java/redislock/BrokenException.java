package redislock;

/** {@code LOCKBROKEN}: {@code LOCK.BREAK ... PURGE} has ended the wait. */
public class BrokenException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected BrokenException(String server, String code, String text) {
        super(server, code, text);
    }
}
