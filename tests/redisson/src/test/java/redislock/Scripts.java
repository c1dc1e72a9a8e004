package redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;

/** The scripts that a server was asked to run, by Lua or natively. */
final class Scripts {
  private static final List<String> BY_LUA = List.of("eval", "evalsha");

  private Scripts() {}

  /** How many so far. */
  static long calls(Server server) {
    return byLua(server) + calls(server.info("commandstats"), "lock.redisson");
  }

  /** How many of them by Lua. */
  static long byLua(Server server) {
    String stats = server.info("commandstats");
    return BY_LUA.stream().mapToLong(command -> calls(stats, command)).sum();
  }

  /** Fails when this step runs none of the scripts of this kind natively. */
  static void runsNatively(Server server, String kind, String what, Runnable step) {
    long before = server.stat("redisson_" + kind);
    step.run();
    assertTrue(server.stat("redisson_" + kind) > before, "not run natively: " + what);
  }

  private static long calls(String stats, String command) {
    String before = "cmdstat_" + command + ":calls=";
    int at = stats.indexOf(before);
    return at < 0 ? 0 : Long.parseLong(stats.substring(at + before.length()).split(",")[0]);
  }
}
