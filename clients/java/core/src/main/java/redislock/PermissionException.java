package redislock;

/** {@code NOPERM}, {@code NOAUTH} or {@code WRONGPASS}: the user lacks a permission, or the login failed. */
public class PermissionException extends RefusedException {
    private static final long serialVersionUID = 1;

    PermissionException(String server, String code, String text) {
        super(server, code, text);
    }
}
