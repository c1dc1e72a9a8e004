package redislock;

import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import redislock.internal.net.Reply;

/**
 * The state of a lock ({@code LOCK.INFO}).
 *
 * @param mode        {@code exclusive}, {@code read}, {@code write}, or {@code string}: a holder that has set the key
 *     with {@code SET}; null when nothing holds the lock
 * @param holders     the holder, or the readers; of some 250 readers the server leaves the rest out
 * @param waiters     the number of waiting requests
 * @param longestWait how long the first of them has waited
 */
public record LockInfo(@Nullable String mode, List<Holder> holders, long waiters, Duration longestWait) {
    /**
     * A holder. Its text does not show the owner.
     *
     * @param owner     the owner, which is the credential of the hold: do not log it. Empty for {@code string}
     * @param note      the text beside the hold, or null
     * @param token     the fencing token; null when the server has none, as for a hold that Redisson has taken
     * @param holds     the hold count
     * @param remaining the rest of the lease; null when it has no end
     * @param held      how long it has held the lock so far; null when the server does not know
     */
    public record Holder(String owner, @Nullable String note, @Nullable Long token, long holds,
            @Nullable Duration remaining, @Nullable Duration held) {
        private static Holder of(Object reply) {
            Long left = Reply.number(reply, "pttl");
            return new Holder(text(reply, "owner", ""), text(reply, "note", null), Reply.number(reply, "token"),
                    number(reply, "holds"), left == null || left < 0 ? null : Duration.ofMillis(left),
                    span(Reply.number(reply, "held-ms")));
        }

        @Override
        public String toString() {
            return "Holder[note=" + note + ", token=" + token + ", remaining=" + remaining + ", held=" + held + "]";
        }
    }

    static LockInfo of(@Nullable Object reply) {
        Stream<?> holders = Reply.field(reply, "holders") instanceof List<?> list ? list.stream() : Stream.of();
        List<Holder> all = holders.map(Holder::of).toList();
        return new LockInfo(all.isEmpty() ? null : text(reply, "mode", null), all, number(reply, "waiters"),
                Duration.ofMillis(number(reply, "longest-wait-ms")));
    }

    private static long number(@Nullable Object reply, String name) {
        Long number = Reply.number(reply, name);
        return number == null ? 0 : number;
    }

    private static @Nullable Duration span(@Nullable Long millis) {
        return millis == null ? null : Duration.ofMillis(millis);
    }

    private static @Nullable String text(@Nullable Object reply, String name, @Nullable String absent) {
        String text = Reply.text(Reply.field(reply, name));
        return text == null ? absent : text;
    }
}
