package lockbench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.List;
import java.util.stream.Collectors;

/** The table at the head of a section: when, with what and where it was measured. */
final class Setting {
  private Setting() {}

  /** Libraries are named by a class of each. */
  static String table(Effort effort, int rounds, List<Class<?>> libraries) {
    return """
| | |
|---|---|
| date | %s |
| server | %s |
| module | %s |
| clients | %s; Java %s |
| effort | %s |
| machine | %s, %d cores; %s |
"""
        .formatted(
            LocalDate.now(ZoneOffset.UTC),
            serverVersion(),
            module(),
            libraries.stream().map(Setting::jar).collect(Collectors.joining(", ")),
            System.getProperty("java.version"),
            effort.inWords(rounds),
            cpuModel(),
            Server.cores(),
            Server.cores() > 1 ? "the server on one, the JVM on another" : "one for all");
  }

  private static String serverVersion() {
    try (Server server = new Server(List.of())) {
      return server.version();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The commit, or what `LOCK_MODULE` names. */
  private static String module() {
    String given = System.getenv("LOCK_MODULE");
    if (given != null) {
      return Path.of(given).getFileName() + ", given by LOCK_MODULE";
    }
    return "redis_lock, commit " + outputOf("git", "rev-parse", "--short", "HEAD");
  }

  private static String outputOf(String... command) {
    try {
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      return new String(process.getInputStream().readAllBytes()).strip();
    } catch (IOException error) {
      return "unknown";
    }
  }

  /** The name and version of the library that a class comes from: "jedis-6.2.0". */
  private static String jar(Class<?> type) {
    Path jar = Path.of(type.getProtectionDomain().getCodeSource().getLocation().getPath());
    return jar.getFileName().toString().replace(".jar", "");
  }

  private static String cpuModel() {
    try {
      return Files.readAllLines(Path.of("/proc/cpuinfo")).stream()
          .filter(line -> line.startsWith("model name"))
          .map(line -> line.substring(line.indexOf(':') + 1).strip())
          .findFirst()
          .orElse("unknown processor");
    } catch (IOException error) {
      return "unknown processor";
    }
  }
}
