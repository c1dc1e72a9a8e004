package redislock;

/** {@code NOPERM}, {@code NOAUTH} or {@code WRONGPASS}: the user lacks a permission, or the login failed. */
public class PermissionException extends RefusedException {
    private static final long serialVersionUID = 1;

    /**
     * A refusal of this class.
     *
     * @param server the server's name, {@code host:port}
     * @param code   the first word of the server's error
     * @param text   the rest
     */
    protected PermissionException(String server, String code, String text) {
        super(server, code, text);
    }
}
