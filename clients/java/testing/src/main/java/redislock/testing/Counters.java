package redislock.testing;

import java.util.List;

/** The sums of {@code INFO lock} that hold at all times, see docs/COMMANDS.md. */
final class Counters {
    private static final List<String> ENDS_OF_GRANTS =
            List.of("released", "session_ended", "expired", "broken", "lost", "undone", "unwatched");
    private static final List<String> ENDS_OF_WAITS = List.of(
            "granted", "timed_out", "unblocked", "disconnected", "taken_over", "withdrawn", "failed", "kept");
    private static final List<String> ENDS_OF_TICKETS =
            List.of("granted", "timed_out", "withdrawn", "taken_over", "failed", "unheard", "kept");

    private Counters() {}

    /** Fails when the counters do not add up, or the module has caught a bug. */
    static void check(String info) {
        check(info, "lock_grants", "lock_grants_", ENDS_OF_GRANTS, "lock_grants_tracked");
        check(info, "lock_waits_parked", "lock_waits_", ENDS_OF_WAITS, "lock_waiters");
        if (info.contains("lock_tickets_queued:")) {
            check(info, "lock_tickets_queued", "lock_tickets_", ENDS_OF_TICKETS, "lock_tickets");
        }
        if (number(info, "lock_panics") != 0) {
            throw new AssertionError("the module caught a bug:\n" + info);
        }
    }

    /** A number in a section of {@code INFO}. */
    static long number(String info, String name) {
        String field = TestServer.fieldOf(info, name);
        if (field.isEmpty()) {
            throw new AssertionError("no " + name + " in:\n" + info);
        }
        return Long.parseLong(field);
    }

    private static void check(String info, String begun, String prefix, List<String> ends, String now) {
        long ended = ends.stream().mapToLong(end -> number(info, prefix + end)).sum();
        if (number(info, begun) != ended + number(info, now)) {
            throw new AssertionError(begun + " does not add up:\n" + info);
        }
    }
}
