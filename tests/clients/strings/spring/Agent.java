import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

/** The agent of Spring Integration's registry and of ShedLock; driver/strings.rs lists the orders and the answers. */
public final class Agent {
  /** How long this program waits before it asks a library again that does not wait itself, or that has failed. */
  private static final Duration POLL = Duration.ofMillis(100);

  private static LettuceConnectionFactory factory;

  /** Tries once, or waits: the release, if the lock was taken. */
  private interface Library {
    Optional<Runnable> lock();
  }

  private static Library spring(RedisLockType type, Duration lease) {
    RedisLockRegistry registry = new RedisLockRegistry(factory, "string", lease);
    registry.setRedisLockType(type);
    return () -> {
      DistributedLock lock = registry.obtain("lock");
      lock.lock();
      return Optional.of(lock::unlock);
    };
  }

  private static Library shedLock(Duration lease) {
    // Safe: compares before it deletes. By default it deletes also a lock that has expired and that another one holds.
    LockProvider provider =
        new RedisLockProvider.Builder(factory).environment("string").keyPrefix("shed").safeUpdate(true).build();
    return () -> {
      Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), "lock", lease, Duration.ZERO));
      return lock.map(taken -> taken::unlock);
    };
  }

  private static Runnable lock(Library library) {
    while (true) {
      try {
        Optional<Runnable> release = library.lock();
        if (release.isPresent()) return release.get();
      } catch (RuntimeException failed) {
        // The registry's script reads the key with GET, which fails while the module holds the lock.
      }
      LockSupport.parkNanos(POLL.toNanos());
    }
  }

  private static boolean succeeds(Runnable task) {
    try {
      task.run();
      return true;
    } catch (RuntimeException failed) {
      return false;
    }
  }

  private static String contend(Supplier<Library> newLibrary, int threads, int rounds) throws InterruptedException {
    AtomicInteger begun = new AtomicInteger();
    AtomicInteger released = new AtomicInteger();
    AtomicInteger refused = new AtomicInteger();
    AtomicInteger unsure = new AtomicInteger();
    StringRedisTemplate plain = new StringRedisTemplate(factory);
    Runnable increment =
        () -> {
          String count = plain.opsForValue().get("counter");
          plain.opsForValue().set("counter", Long.toString(count == null ? 1 : Long.parseLong(count) + 1));
        };
    List<Thread> workers = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      Library library = newLibrary.get();
      Runnable work =
          () -> {
            while (begun.incrementAndGet() <= rounds) {
              Runnable release = lock(library);
              if (!succeeds(increment)) unsure.incrementAndGet();
              (succeeds(release) ? released : refused).incrementAndGet();
            }
          };
      workers.add(new Thread(work));
    }
    workers.forEach(Thread::start);
    for (Thread worker : workers) worker.join();
    return "contended " + released + " " + refused + " " + unsure;
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    int port = Integer.parseInt(arguments[1]);
    factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration(arguments[0], port));
    factory.afterPropertiesSet();
    factory.start();
    Duration lease = Duration.ofMillis(Long.parseLong(arguments[3]));
    // A registry for each thread, as if each were a process: threads with one registry wait for each other locally.
    Supplier<Library> newLibrary =
        switch (arguments[2]) {
          case "spring" -> () -> spring(RedisLockType.SPIN_LOCK, lease);
          case "spring-pubsub" -> () -> spring(RedisLockType.PUB_SUB_LOCK, lease);
          default -> () -> shedLock(lease);
        };
    System.out.println("ready");
    Library library = newLibrary.get();
    Runnable release = null;
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "key" -> System.out.println(arguments[2].equals("shedlock") ? "shed:string:lock" : "string:lock");
        case "lock" -> {
          release = lock(library);
          System.out.println("locked");
        }
        case "unlock" -> {
          long before = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
          System.out.println(succeeds(release) ? "unlocked " + before : "refused");
        }
        default -> System.out.println(contend(newLibrary, Integer.parseInt(words[1]), Integer.parseInt(words[2])));
      }
    }
    System.exit(0);
  }
}
