package redislock;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A real server with the module: on a loopback port and in a directory of its own, ended by its
 * pid, and asked at the end whether its books balance.
 *
 * <p>The environment names the server's binary, {@code LOCK_SERVER}, and the module, {@code
 * LOCK_MODULE}, as for the server tests in Rust.
 */
final class Server implements AutoCloseable {
  private static final int TRIES = 20;

  final int port;
  private final Process process;
  private final Path dir;
  private final List<Conn> conns = new ArrayList<>();

  private Server(int port, Path dir, String... options) throws IOException {
    this.port = port;
    this.dir = dir;
    this.process = Children.start(command(port, dir, options), dir);
  }

  /** A server without persistence, with more options. */
  static Server start(String... options) {
    try {
      for (int i = 0; i < TRIES; i++) {
        Server server = new Server(freePort(), Files.createTempDirectory("redis-lock"), options);
        if (server.comesUp()) {
          return server;
        }
        // Another process took the port between our look and the server's: then the next one.
        String log = server.log();
        server.end();
        if (!log.contains("Address already in use")) {
          throw new AssertionError("the server did not start:\n" + log);
        }
      }
      throw new AssertionError("no free port");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** A port that was free a moment ago. */
  static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }

  /** A connection, closed with the server at the latest. */
  Conn conn() {
    Conn conn = new Conn(port);
    conns.add(conn);
    return conn;
  }

  /** A field of {@code INFO lock}, by its name without the prefix. */
  long stat(String name) {
    return Books.field(info("lock"), "lock_" + name);
  }

  /** A section of {@code INFO}. */
  String info(String section) {
    try (Conn conn = new Conn(port)) {
      return (String) conn.call("INFO", section);
    }
  }

  /** Waits until so many requests are parked. */
  void awaitWaiters(int count) {
    Until.until(count + " parked requests", () -> stat("waiters") == count);
  }

  /** What the server has logged. */
  String log() {
    try {
      Path log = dir.resolve("log");
      return Files.exists(log) ? Files.readString(log) : "";
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Ends the server; fails when it did not live till here, or its books do not balance. */
  @Override
  public void close() {
    boolean lived = process.isAlive();
    String log = log();
    try {
      if (!lived || log.contains("BUG REPORT") || log.contains("panic at")) {
        throw new AssertionError("the server's log:\n" + log);
      }
      Books.check(info("lock"));
    } finally {
      end();
    }
  }

  /** Ends the process and takes its directory away. */
  private void end() {
    conns.forEach(Conn::close);
    Children.end(process);
    try (var files = Files.walk(dir)) {
      files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private boolean comesUp() {
    long start = System.nanoTime();
    while (process.isAlive() && System.nanoTime() - start < Until.PATIENCE.toNanos()) {
      if (answers()) {
        return true;
      }
      Children.await(process, 2, TimeUnit.MILLISECONDS);
    }
    return false;
  }

  /** Whether this very process serves the port: another one may have been faster. */
  private boolean answers() {
    try {
      return info("server").contains("process_id:" + process.pid() + "\r");
    } catch (UncheckedIOException notYet) {
      return false;
    }
  }

  private static List<String> command(int port, Path dir, String... options) {
    List<String> command = new ArrayList<>();
    command.add(env("LOCK_SERVER", "redis-server"));
    command.addAll(List.of("--port", "" + port, "--bind", "127.0.0.1", "--save", ""));
    command.addAll(List.of("--dir", dir.toString(), "--logfile", dir.resolve("log").toString()));
    command.addAll(List.of("--loadmodule", module()));
    command.addAll(Arrays.asList(options));
    return command;
  }

  private static String module() {
    String base = System.getProperty("basedir", ".");
    return env("LOCK_MODULE", Path.of(base, "../../target/release/libredis_lock.so").toString());
  }

  private static String env(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }
}
