package redislock;

/** {@code WRONGTYPE} or {@code LOCKTYPE}: the key holds other data, or a lock of another kind. */
public class WrongTypeException extends RefusedException {
    private static final long serialVersionUID = 1;

    WrongTypeException(String server, String code, String text) {
        super(server, code, text);
    }
}
