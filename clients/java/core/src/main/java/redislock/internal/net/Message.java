package redislock.internal.net;

import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The outcome of a ticket, as the module publishes it: {@code granted <token> <tag>}, {@code timeout <tag>} or
 * {@code failed <CODE> <tag>}. The token is not used: the wait asks for it.
 *
 * @param number the number of the ticket, which is the tag
 * @param kind   the outcome
 * @param code   of {@link Kind#FAILED}, otherwise empty
 */
public record Message(long number, Kind kind, String code) {
    /** The outcomes. */
    public enum Kind { GRANTED, TIMED_OUT, FAILED }

    private static final Pattern FORM = Pattern.compile("(granted \\S+|timeout|failed (\\S+)) ([0-9]{1,18})");

    /** Reads a message. Null for any other text: a client that may publish to the channel can send anything. */
    public static Message read(byte[] payload) {
        Matcher read = FORM.matcher(new String(payload, StandardCharsets.UTF_8));
        if (!read.matches()) {
            return null;
        }
        Kind kind = switch (read.group(1).charAt(0)) {
            case 'g' -> Kind.GRANTED;
            case 't' -> Kind.TIMED_OUT;
            default -> Kind.FAILED;
        };
        return new Message(Long.parseLong(read.group(3)), kind, kind == Kind.FAILED ? read.group(2) : "");
    }
}
