package redislock.internal.net;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

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

    /** Reads a message. Null for any other text: a client that may publish to the channel can send anything. */
    public static Message read(byte[] payload) {
        String text;
        try {
            text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(payload)).toString();
        } catch (CharacterCodingException notText) {
            return null;
        }
        String[] words = text.split(" ", -1);
        int length = words.length;
        long number = length < 2 ? -1 : number(words[length - 1]);
        if (number < 0) {
            return null;
        }
        if (length == 2 && words[0].equals("timeout")) {
            return new Message(number, Kind.TIMED_OUT, "");
        }
        if (length == 3 && words[0].equals("granted")) {
            return new Message(number, Kind.GRANTED, "");
        }
        if (length == 3 && words[0].equals("failed")) {
            return new Message(number, Kind.FAILED, words[1]);
        }
        return null;
    }

    private static long number(String tag) {
        if (tag.isEmpty() || tag.length() > 18 || !tag.chars().allMatch(c -> c >= '0' && c <= '9')) {
            return -1;
        }
        return Long.parseLong(tag);
    }
}
