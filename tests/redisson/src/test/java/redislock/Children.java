package redislock;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Processes that end with this one at the latest, however it ends (but for SIGKILL). */
final class Children {
  private static final Set<Process> ALIVE = ConcurrentHashMap.newKeySet();

  static {
    Thread ending = new Thread(() -> ALIVE.forEach(Process::destroyForcibly));
    Runtime.getRuntime().addShutdownHook(ending);
  }

  private Children() {}

  /** Starts a process in this directory; what it prints to standard error is printed here. */
  static Process start(List<String> command, Path dir) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command).directory(dir.toFile());
    Process process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    ALIVE.add(process);
    return process;
  }

  /** Ends a process and waits until it has gone. */
  static void end(Process process) {
    process.destroyForcibly();
    if (!await(process, Until.PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
      throw new AssertionError("process " + process.pid() + " does not end");
    }
    ALIVE.remove(process);
  }

  /** Whether the process ends within this time. */
  static boolean await(Process process, long time, TimeUnit unit) {
    try {
      return process.waitFor(time, unit);
    } catch (InterruptedException e) {
      throw new AssertionError("interrupted", e);
    }
  }
}
