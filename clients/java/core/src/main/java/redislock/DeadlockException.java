package redislock;

/** {@code DEADLOCK}: the owner would wait for itself. Its holds are unchanged. */
public class DeadlockException extends RefusedException {
    private static final long serialVersionUID = 1;

    DeadlockException(String server, String code, String text) {
        super(server, code, text);
    }
}
