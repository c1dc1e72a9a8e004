package redislock;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.redisson.api.RedissonClient;

/**
 * Where a test plays: servers, Redisson clients and whatever else it starts. All of it ends with
 * the test, the last first, also when the test fails; then the servers' logs are shown.
 */
final class Stage implements AfterEachCallback {
  private final Deque<AutoCloseable> started = new ArrayDeque<>();

  /** A server with the module and more options. */
  Server server(String... options) {
    return add(Server.start(options));
  }

  /** A thread of a new Redisson instance. */
  Flow redisson(Server server) {
    return redisson(Clients.of(server.port));
  }

  /** A thread of this new instance. */
  Flow redisson(RedissonClient redisson) {
    add(() -> redisson.shutdown(0, 2, TimeUnit.SECONDS));
    return another(redisson);
  }

  /** One more thread of an instance. */
  Flow another(RedissonClient redisson) {
    return add(new Flow(redisson));
  }

  /** Ends this with the test. */
  <T extends AutoCloseable> T add(T thing) {
    started.push(thing);
    return thing;
  }

  @Override
  public void afterEach(ExtensionContext test) throws Exception {
    if (test.getExecutionException().filter(AssertionError.class::isInstance).isPresent()) {
      started.stream()
          .filter(Server.class::isInstance)
          .forEach(server -> System.err.println(((Server) server).log()));
    }
    Throwable first = null;
    for (AutoCloseable thing : started) {
      try {
        thing.close();
      } catch (Exception | AssertionError e) {
        first = first == null ? e : first;
      }
    }
    if (first != null) {
      throw new AssertionError("after the test: " + first.getMessage(), first);
    }
  }
}
