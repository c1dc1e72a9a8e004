package redislock;

import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * The loss of a hold.
 *
 * @param name   the key as text; bytes that are not UTF-8 are replaced
 * @param token  the fencing token of the grant that was lost
 * @param reason why it was lost
 * @param code   with {@link LostReason#REFUSED} the code of the server's error, otherwise empty
 * @param text   with {@link LostReason#REFUSED} the text of the server's error, otherwise empty
 */
public record Lost(String name, long token, LostReason reason, String code, String text) {
    /**
     * A loss; nothing is null.
     *
     * @param name   the key as text
     * @param token  the fencing token
     * @param reason why it was lost
     * @param code   the code of the server's error, or empty
     * @param text   the text of the server's error, or empty
     */
    public Lost {
        Objects.requireNonNull(name);
        Objects.requireNonNull(reason);
        Objects.requireNonNull(code);
        Objects.requireNonNull(text);
    }

    /**
     * A loss without an error of the server.
     *
     * @param key    the key
     * @param token  the fencing token of the grant that was lost
     * @param reason why it was lost
     * @return the loss
     */
    public static Lost of(byte[] key, long token, LostReason reason) {
        return new Lost(new String(key, StandardCharsets.UTF_8), token, reason, "", "");
    }

    /** A sentence, such as {@code the lock invoices:42 was lost: the server says that the grant is over}. */
    @Override
    public String toString() {
        String detail = code.isEmpty() ? "" : ": " + code + " " + text;
        return "the lock " + name + " was lost: " + reason + detail;
    }
}
