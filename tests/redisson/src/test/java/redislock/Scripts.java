package redislock;

import java.util.List;

/** The scripts that a server was asked to run. */
final class Scripts {
  private static final List<String> COMMANDS = List.of("eval", "evalsha");

  private Scripts() {}

  /** How many so far. */
  static long calls(Server server) {
    String stats = server.info("commandstats");
    return COMMANDS.stream().mapToLong(command -> calls(stats, command)).sum();
  }

  private static long calls(String stats, String command) {
    String before = "cmdstat_" + command + ":calls=";
    int at = stats.indexOf(before);
    return at < 0 ? 0 : Long.parseLong(stats.substring(at + before.length()).split(",")[0]);
  }
}
