package redislock;

/** {@code WRONGTYPE} or {@code LOCKTYPE}: the key holds other data, or a lock of another kind. */
public class WrongTypeException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected WrongTypeException(String server, String code, String text) {
        super(server, code, text);
    }
}
