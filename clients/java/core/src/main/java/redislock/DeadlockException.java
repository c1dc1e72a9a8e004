package redislock;

/** {@code DEADLOCK}: the owner would wait for itself. Its holds are unchanged. */
public class DeadlockException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected DeadlockException(String server, String code, String text) {
        super(server, code, text);
    }
}
