package redislock.internal.net;

import java.nio.charset.StandardCharsets;
import java.util.List;
import redislock.LockConnectionException;
import redislock.LockException;

/** What a reply means. */
public final class Reply {
    private Reply() {
    }

    /** The error for a reply that is none of the module's. */
    public static LockException foreign(String server) {
        return new LockConnectionException(server, "a reply that is none of the module's", null);
    }

    /**
     * The tokens of a reply to an acquire, or null for nil. For {@code LATCH.WAIT}: 1 or 0, which is not a token.
     *
     * @throws LockException for any other reply
     */
    public static long[] granted(Object reply, String server) {
        if (reply == null || reply.equals(0L)) {
            return null;
        }
        if (reply instanceof Long token) {
            return new long[] {token};
        }
        if (reply instanceof List<?> list && list.stream().allMatch(Long.class::isInstance)) {
            return list.stream().mapToLong(Long.class::cast).toArray();
        }
        throw foreign(server);
    }

    /** Whether a server that knows tickets has queued the request. */
    public static boolean isQueued(Object reply) {
        return "QUEUED".equals(reply);
    }

    /** The value behind this name in a map, or null. */
    public static Object field(Object reply, String name) {
        if (reply instanceof List<?> list) {
            for (int i = 0; i + 1 < list.size(); i += 2) {
                if (name.equals(text(list.get(i)))) {
                    return list.get(i + 1);
                }
            }
        }
        return null;
    }

    /** The number behind this name in a map, or null. */
    public static Long number(Object reply, String name) {
        return field(reply, name) instanceof Long number ? number : null;
    }

    /** The text of a string, or null. */
    public static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        return value instanceof String text ? text : null;
    }
}
