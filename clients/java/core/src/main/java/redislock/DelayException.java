package redislock;

/** {@code LOCKDELAY}: the server grants nothing yet ({@code lock.startup-delay}). */
public class DelayException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected DelayException(String server, String code, String text) {
        super(server, code, text);
    }
}
