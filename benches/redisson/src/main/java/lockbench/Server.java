package lockbench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;

/**
 * A server on a loopback port and in a directory of its own, pinned to core 0 where there are two.
 */
final class Server implements AutoCloseable {
  private static final long STARTS_WITHIN_MS = 30_000;
  private static final int ANSWERS_WITHIN_MS = 30_000;
  private static final long ENDS_WITHIN_S = 10;

  private final Path dir;
  private final int port;
  private final Process process;

  Server(List<String> options) throws IOException {
    dir = Files.createTempDirectory("lockbench");
    port = freePort();
    List<String> words = new ArrayList<>(cores() > 1 ? List.of("taskset", "-c", "0") : List.of());
    words.add(variable("LOCK_SERVER", "redis-server"));
    words.addAll(List.of("--port", "" + port, "--bind", "127.0.0.1", "--save", ""));
    words.addAll(List.of("--dir", dir.toString(), "--logfile", dir.resolve("log").toString()));
    words.addAll(options);
    process =
        new ProcessBuilder(words)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .start();
    Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
    waitUntilItAnswers();
  }

  /** The module: `LOCK_MODULE`, or the release build. */
  static String module() {
    Path path = Path.of(variable("LOCK_MODULE", "target/release/libredis_lock.so"));
    return path.toAbsolutePath().toString();
  }

  /** The cores of the machine, not only those that this process may use. */
  static int cores() {
    try (Stream<String> lines = Files.lines(Path.of("/proc/cpuinfo"))) {
      return (int) lines.filter(line -> line.startsWith("processor\t")).count();
    } catch (IOException error) {
      return 1;
    }
  }

  static String variable(String name, String otherwise) {
    String value = System.getenv(name);
    return value == null ? otherwise : value;
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }

  private void waitUntilItAnswers() throws IOException {
    long until = System.currentTimeMillis() + STARTS_WITHIN_MS;
    while (process.isAlive() && System.currentTimeMillis() < until) {
      try (Jedis connection = connect()) {
        connection.ping();
        return;
      } catch (JedisConnectionException notYet) {
        pause();
      }
    }
    Path log = dir.resolve("log");
    String told = Files.exists(log) ? Files.readString(log) : "no log";
    close();
    throw new IOException("the server does not answer: " + told);
  }

  private static void pause() {
    try {
      Thread.sleep(20);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  int port() {
    return port;
  }

  Jedis connect() {
    return new Jedis("127.0.0.1", port, ANSWERS_WITHIN_MS);
  }

  /** What the server calls itself: "redis 7.0.15". */
  String version() {
    try (Jedis connection = connect()) {
      String info = connection.info("server");
      String name = Counters.field(info, "server_name").orElse("redis");
      String version =
          Counters.field(info, "valkey_version")
              .or(() -> Counters.field(info, "redis_version"))
              .orElse("?");
      return name + " " + version;
    }
  }

  @Override
  public void close() {
    process.destroy();
    try {
      if (!process.waitFor(ENDS_WITHIN_S, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
      removeDirectory();
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private void removeDirectory() {
    try (Stream<Path> files = Files.walk(dir)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.delete(file);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
