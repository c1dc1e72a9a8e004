import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.zip.ZipFile;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import redislock.FencedLock;
import redislock.LockClient;
import redislock.micrometer.LockMetrics;
import redislock.opentelemetry.LockTelemetry;
import redislock.shedlock.FencedLockProvider;
import redislock.shedlock.FencedSimpleLock;
import redislock.spring.FencedDistributedLock;
import redislock.spring.FencedLockRegistry;

/**
 * Locks with each of the jars once, on a server of its own (LOCK_SERVER, with the module LOCK_MODULE): they are
 * complete, and find what they need. The argument is the server's directory.
 */
final class Modules {
  private Modules() {}

  public static void main(String[] args) throws Exception {
    for (Class<?> one : new Class<?>[] {
        LockClient.class, LockMetrics.class, LockTelemetry.class, FencedLockProvider.class,
        FencedLockRegistry.class}) {
      try (ZipFile jar = new ZipFile(Path.of(one.getProtectionDomain().getCodeSource().getLocation().toURI()).toFile())) {
        check(jar.getEntry("META-INF/LICENSE") != null, "the licence in " + jar.getName());
      }
    }
    int port = freePort();
    Process server = new ProcessBuilder(System.getenv("LOCK_SERVER"), "--bind", "127.0.0.1", "--port", "" + port,
        "--save", "", "--loadmodule", System.getenv("LOCK_MODULE"))
            .directory(Files.createDirectories(Path.of(args[0])).toFile()).redirectErrorStream(true).start();
    try {
      awaitStart(server);
      lockWithEach("redis://127.0.0.1:" + port);
    } finally {
      server.destroy();
      server.waitFor();
    }
  }

  private static void lockWithEach(String address) throws Exception {
    LockTelemetry telemetry = new LockTelemetry(OpenTelemetry.noop());
    try (LockClient client = LockClient.builder(address).observer(telemetry).build()) {
      SimpleMeterRegistry meters = new SimpleMeterRegistry();
      new LockMetrics(client).bindTo(meters);

      FencedLock lock = client.lock("lock");
      lock.lock();
      check(lock.token() > 0, "a token");
      lock.unlock();

      FencedDistributedLock order = new FencedLockRegistry(client, "orders").obtain("42");
      order.lock();
      check(client.lock("orders:42").isLocked(), "the lock of the registry");
      order.unlock();

      LockConfiguration job = new LockConfiguration(Instant.now(), "job", Duration.ofSeconds(30), Duration.ZERO);
      SimpleLock held = new FencedLockProvider(client).lock(job).orElseThrow();
      check(((FencedSimpleLock) held).token() > 0, "a token of the provider");
      held.unlock();

      double acquisitions = meters.get("redis.lock.acquisitions").functionCounter().count();
      check(acquisitions == 3, "three acquisitions in the meters: " + acquisitions);
    }
  }

  private static void awaitStart(Process server) throws Exception {
    BufferedReader log = new BufferedReader(new InputStreamReader(server.getInputStream()));
    StringBuilder printed = new StringBuilder();
    for (String line = log.readLine(); line != null; line = log.readLine()) {
      if (line.contains("Ready to accept connections")) return;
      printed.append(line).append('\n');
    }
    throw new AssertionError("the server ended:\n" + printed);
  }

  private static int freePort() throws Exception {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }

  private static void check(boolean isRight, String what) {
    if (!isRight) throw new AssertionError("missing: " + what);
  }
}
