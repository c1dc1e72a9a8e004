package redislock;

/** {@code LOCKBUSY}: the limit of waiters, tickets or bound holds is reached, or {@code lock.drain} is on. */
public class BusyException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected BusyException(String server, String code, String text) {
        super(server, code, text);
    }
}
