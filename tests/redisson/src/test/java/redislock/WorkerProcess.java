package redislock;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * A JVM of its own that runs a program of these tests: it says "ready", waits for a word, says
 * "done".
 */
final class WorkerProcess implements AutoCloseable {
  private final Process process;
  private final BufferedReader says;

  /** Starts the program; its JVM is a small one, compiled quickly rather than well. */
  WorkerProcess(Class<?> program, String... args) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.addAll(List.of("-cp", classPath(), program.getName()));
    command.addAll(Arrays.asList(args));
    try {
      process = Children.start(command, Path.of("."));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    says =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
  }

  /** Waits until it can begin. */
  void awaitReady() {
    expect("ready");
  }

  /** Lets it begin. */
  void go() {
    try {
      process.getOutputStream().write('\n');
      process.getOutputStream().flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Waits until it has done all, however slow the machine is; fails when something was wrong, or
   * when for a minute nothing was done by any.
   */
  void awaitDone(LongSupplier done) {
    long before = -1;
    while (!Children.await(process, 60, TimeUnit.SECONDS)) {
      long now = done.getAsLong();
      if (now == before) {
        throw new AssertionError("the workers stand still after " + now);
      }
      before = now;
    }
    expect("done");
  }

  @Override
  public void close() {
    Children.end(process);
  }

  private void expect(String word) {
    try {
      String line = says.readLine();
      if (!word.equals(line)) {
        throw new AssertionError("a worker said " + line + ", not " + word);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** What this JVM was given: the runner hands its own over in a property. */
  private static String classPath() {
    return System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
  }
}
