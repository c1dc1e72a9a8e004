import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import redislock.LockClient;
import redislock.micrometer.LockMetrics;
import redislock.shedlock.FencedLockProvider;
import redislock.spring.FencedLockRegistry;

/** Makes what each of the other jars offers: they are complete, and find what they need. Nothing is sent. */
final class Modules {
  private Modules() {}

  public static void main(String[] args) {
    try (LockClient client = LockClient.create("redis://127.0.0.1:6379")) {
      SimpleMeterRegistry meters = new SimpleMeterRegistry();
      new LockMetrics(client).bindTo(meters);
      if (meters.getMeters().isEmpty()) throw new AssertionError("no meters");
      new FencedLockRegistry(client, "orders").obtain("42");
      new FencedLockProvider(client);
    }
  }
}
