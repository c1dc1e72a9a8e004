package redislock;

import java.util.Set;

/**
 * The server refused the request with an error. Programs distinguish errors by their {@linkplain #code() code}; the
 * codes that many programs handle have a class of their own.
 */
public class RefusedException extends LockException {
    private static final long serialVersionUID = 1;

    private static final Set<String> ELSEWHERE =
            Set.of("READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED", "MOVED", "ASK");
    private static final Set<String> PASSING =
            Set.of("TRYAGAIN", "BUSY", "LOCKDELAY", "LOCKBUSY", "NOREPLICAS", "OOM", "MISCONF");

    /** The first word of the error. */
    private final String code;
    /** The rest. */
    private final String text;

    RefusedException(String server, String code, String text) {
        super(server, text.isEmpty() ? code : code + " " + text, null);
        this.code = code;
        this.text = text;
    }

    /**
     * The exception for an error of the server.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     * @return the exception of the class for this code
     */
    public static RefusedException of(String server, String code, String text) {
        return switch (code) {
            case "DEADLOCK" -> new DeadlockException(server, code, text);
            case "QUEUEFULL" -> new QueueFullException(server, code, text);
            case "NOPERM", "NOAUTH", "WRONGPASS" -> new PermissionException(server, code, text);
            case "WRONGTYPE", "LOCKTYPE" -> new WrongTypeException(server, code, text);
            default -> new RefusedException(server, code, text);
        };
    }

    /**
     * The stable code of the error.
     *
     * @return the first word of the server's error
     */
    public String code() {
        return code;
    }

    /**
     * The text behind the code.
     *
     * @return the rest of the server's error, which may be empty
     */
    public String text() {
        return text;
    }

    @Override
    public boolean isPassing() {
        return isElsewhere() || PASSING.contains(code);
    }

    /**
     * Whether this server does not serve such requests at present, while another one may.
     *
     * @return true for {@code READONLY}, {@code LOADING}, {@code CLUSTERDOWN}, {@code MASTERDOWN}, {@code UNBLOCKED},
     *     {@code MOVED}, {@code ASK}
     */
    public boolean isElsewhere() {
        return ELSEWHERE.contains(code);
    }
}
