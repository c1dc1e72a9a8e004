package redislock;

import java.util.List;

/** The two sums in {@code INFO lock} that hold at every quiet moment, see src/lock/stats.rs. */
final class Books {
  private static final List<String> ENDS_OF_GRANTS =
      List.of("released", "expired", "broken", "lost", "session_ended", "undone", "unwatched");
  private static final List<String> ENDS_OF_WAITS =
      List.of(
          "granted",
          "timed_out",
          "unblocked",
          "disconnected",
          "taken_over",
          "withdrawn",
          "failed",
          "kept");

  private Books() {}

  /** Fails when they do not hold. */
  static void check(String info) {
    check(info, "grants", ENDS_OF_GRANTS, "lock_grants_tracked");
    check(info, "waits", ENDS_OF_WAITS, "lock_waiters");
    if (field(info, "lock_panics") != 0) {
      throw new AssertionError("the module caught a panic:\n" + info);
    }
  }

  /** A number in a section of {@code INFO}. */
  static long field(String info, String name) {
    for (String line : info.split("\r\n")) {
      if (line.startsWith(name + ":")) {
        return Long.parseLong(line.substring(name.length() + 1));
      }
    }
    throw new AssertionError("no " + name + " in:\n" + info);
  }

  private static void check(String info, String kind, List<String> ends, String goingOn) {
    long begun = field(info, kind.equals("waits") ? "lock_waits_parked" : "lock_grants");
    long ended = ends.stream().mapToLong(end -> field(info, "lock_" + kind + "_" + end)).sum();
    if (begun != ended + field(info, goingOn)) {
      throw new AssertionError(kind + " do not add up:\n" + info);
    }
  }
}
