package redislock;

/**
 * {@code QUEUEFULL}: as many requests wait for the key already as {@link LockOptions#queue(int)} allows. The request
 * has no place and holds nothing.
 */
public class QueueFullException extends RefusedException {
    private static final long serialVersionUID = 1;

    QueueFullException(String server, String code, String text) {
        super(server, code, text);
    }
}
