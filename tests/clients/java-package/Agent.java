import static java.nio.charset.StandardCharsets.UTF_8;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.logging.Handler;
import java.util.logging.LogManager;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockClosedException;
import redislock.LockLostException;
import redislock.LockOptions;
import redislock.NoSemaphoreException;
import redislock.Released;
import redislock.UnheardException;

/** The agent of the Java package: the orders of driver/ticket_agent.rs. */
final class Agent {
  private final ExecutorService workers = Executors.newCachedThreadPool();
  private final Map<String, CompletableFuture<?>> waits = new ConcurrentHashMap<>();
  private final Map<String, Guard> guards = new ConcurrentHashMap<>();
  private final CountDownLatch gate = new CountDownLatch(1); // what `unblock` opens
  private final Logger log = Logger.getLogger("redislock");
  private final String address;
  private final LockClient client;
  private Runnable disconnect; // closes the program's own client

  private Agent(String host, String port, boolean isOwn, boolean isCluster) {
    address = "redis://" + host + ":" + port;
    if (!isOwn) {
      client = LockClient.create(isCluster ? address.replace("redis", "redis+cluster") : address);
    } else if (isCluster) {
      RedisClusterClient own = RedisClusterClient.create(address);
      client = LockClient.of(own);
      disconnect = own::shutdown;
    } else {
      RedisClient own = RedisClient.create(address);
      client = LockClient.of(own);
      disconnect = own::shutdown;
    }
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset(); // a reconnection is expected here
    Agent agent = new Agent(args[0], args[1], args[2].equals("own"), args.length > 3);
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
      String id = line.substring(0, line.indexOf(' '));
      String order = line.substring(id.length() + 1);
      agent.answer(order.split(" "), id).thenAccept(answer -> {
        if (answer != null) System.out.println(id + " " + answer);
      });
    }
    agent.workers.shutdown();
  }

  /** The answer to an order; null where the order has none. */
  private CompletableFuture<String> answer(String[] words, String id) {
    try {
      return begun(words, id);
    } catch (RuntimeException refused) {
      return CompletableFuture.completedFuture(orFailure(null, refused));
    }
  }

  private CompletableFuture<String> begun(String[] words, String id) {
    return switch (words[0]) {
      case "acquire", "keep" -> acquire(words, id).handle(Agent::orFailure);
      case "permit" -> permit(words).handle(Agent::orFailure);
      case "cancel" -> {
        waits.get(words[1]).cancel(true);
        yield CompletableFuture.completedFuture(null);
      }
      case "renew" -> later(words, guard -> guard.renew(millis(words[4])) ? "1" : "0");
      case "release" -> later(words, guard -> guard.release() == Released.YES ? "1" : "0");
      case "state" -> later(words, guard -> guard.validFor().isZero() ? "lost" : "held");
      case "do" -> later(words, guard -> "did " + text(guard.execute(command(words))));
      case "types" -> later(words, this::types);
      case "odd" -> CompletableFuture.supplyAsync(() -> odd(words[1]), workers).handle(Agent::orFailure);
      case "disconnect" -> CompletableFuture.supplyAsync(() -> {
        disconnect.run();
        return "disconnected";
      }, workers);
      case "block-log" -> {
        log.addHandler(new Handler() {
          @Override
          public void publish(LogRecord record) {
            block(id);
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        });
        yield CompletableFuture.completedFuture("blocks");
      }
      case "unblock" -> {
        gate.countDown();
        yield CompletableFuture.completedFuture("unblocked");
      }
      case "lost" -> guards.get(name(words)).lost().thenApply(lost -> "lost");
      case "close" -> CompletableFuture.supplyAsync(() -> {
        client.close();
        return "closed";
      }, workers);
      default -> CompletableFuture.completedFuture("error other no order: " + words[0]);
    };
  }

  private CompletableFuture<String> acquire(String[] words, String id) {
    LockOptions options = LockOptions.defaults().owner(words[2]).lease(millis(words[4]));
    if (words[0].equals("acquire")) options = options.fixedLease();
    if (words.length > 5) {
      options = options.onLost(lost -> {
        if (words[5].equals("block")) {
          block(id);
        } else {
          client.close();
          System.out.println(id + " closed");
        }
      });
    }
    CompletableFuture<Optional<Guard>> wait = client.lock(words[1], options).acquireAsync(millis(words[3]));
    waits.put(id, wait);
    return wait.thenApply(granted -> {
      granted.ifPresent(guard -> guards.put(words[1] + " " + words[2] + " " + guard.token(), guard));
      return granted.map(guard -> "token " + guard.token()).orElse("nil");
    });
  }

  private void block(String id) {
    System.out.println(id + " blocked");
    try {
      gate.await();
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  /** How Lettuce writes values, where it can. */
  private String types(Guard guard) {
    RedisClient own = RedisClient.create(address);
    RedisCommands<byte[], byte[]> commands = own.connect(ByteArrayCodec.INSTANCE).sync();
    Map<String, Object> values = new LinkedHashMap<>();
    values.put("text", "a\u00e9");
    values.put("bytes", new byte[] {0, -1});
    values.put("int", -12);
    values.put("long", Long.MIN_VALUE);
    values.put("float", 0.1);
    values.put("large", 1e30);
    values.put("chars", new char[] {'a', 'b'});
    values.put("bool", true);
    values.put("null", null);
    values.put("list", List.of(1));
    values.put("object", new Object());
    StringBuilder answer = new StringBuilder("types");
    values.forEach((name, value) -> {
      CommandArgs<byte[], byte[]> set = new CommandArgs<>(ByteArrayCodec.INSTANCE).add("own:" + name);
      if (value instanceof String text) set.add(text);
      else if (value instanceof byte[] bytes) set.add(bytes);
      else if (value instanceof Integer number) set.add(number);
      else if (value instanceof Long number) set.add(number);
      else if (value instanceof Double number) set.add(number);
      else if (value instanceof char[] chars) set.add(chars);
      else set = null;
      if (set != null) commands.dispatch(CommandType.SET, new StatusOutput<>(ByteArrayCodec.INSTANCE), set);
      String result = "ok";
      try {
        guard.execute("SET", "do:" + name, value);
      } catch (RuntimeException failed) {
        result = kind(failed);
      }
      answer.append(' ').append(name).append('=').append(result);
    });
    own.shutdown();
    return answer.toString();
  }

  private String odd(String what) {
    Guard guard = guards.values().iterator().next();
    String tooLong = "o".repeat(257);
    Duration huge = Duration.ofDays(200 * 365);
    LockOptions defaults = LockOptions.defaults();
    Map<String, Supplier<Object>> odd = Map.ofEntries(
        Map.entry("lease-zero", () -> lock(defaults.lease(Duration.ZERO))),
        Map.entry("lease-negative", () -> lock(defaults.lease(Duration.ofSeconds(-1)))),
        Map.entry("lease-short", () -> lock(defaults.lease(Duration.ofNanos(1_500_000)))),
        Map.entry("lease-huge", () -> lock(defaults.lease(huge))),
        Map.entry("wait-negative", () -> client.lock("odd").acquireAsync(Duration.ofSeconds(-1))),
        Map.entry("margin-negative", () -> lock(defaults.margin(Duration.ofSeconds(-1)))),
        Map.entry("margin-large", () -> lock(defaults.margin(Duration.ofSeconds(16)))),
        Map.entry("note-long", () -> lock(defaults.note(tooLong))),
        Map.entry("note-read", () -> read(defaults.note("n"))),
        Map.entry("note-permit", () -> permit(defaults.note("n").limit(1))),
        Map.entry("owner-empty", () -> lock(defaults.owner(""))),
        Map.entry("owner-reserved", () -> lock(defaults.owner("#o"))),
        Map.entry("owner-read", () -> read(defaults.owner("mode"))),
        Map.entry("permits-zero", () -> permit(defaults.limit(0))),
        Map.entry("permits-lock", () -> lock(defaults.limit(1))),
        Map.entry("permit-owner-empty", () -> permit(defaults.owner("").limit(1))),
        Map.entry("permit-lease-zero", () -> permit(defaults.lease(Duration.ZERO).limit(1))),
        Map.entry("session-permit", () -> permit(defaults.session().limit(1))),
        Map.entry("renew-zero", () -> guard.renew(Duration.ZERO)),
        Map.entry("renew-negative", () -> guard.renew(Duration.ofSeconds(-1))),
        Map.entry("renew-huge", () -> guard.renew(huge)));
    return odd.containsKey(what) ? "done " + odd.get(what).get() : "none";
  }

  private Object lock(LockOptions options) {
    return client.lock("odd", options).tryAcquire();
  }

  private Object read(LockOptions options) {
    return client.readWriteLock("odd", options).readLock().tryAcquire();
  }

  private Object permit(LockOptions options) {
    return client.semaphore("odd", options).tryAcquire();
  }

  private CompletableFuture<String> permit(String[] words) {
    LockOptions options = LockOptions.defaults().owner(words[2]).lease(millis(words[4]));
    return CompletableFuture.supplyAsync(() -> client.semaphore(words[1], options), workers)
        .thenCompose(permits -> permits.acquireAsync(millis(words[3])))
        .thenApply(granted -> granted.isPresent() ? "token 0" : "nil");
  }

  /** Runs what waits for the server outside of the thread that reads the orders. */
  private CompletableFuture<String> later(String[] words, Function<Guard, String> call) {
    // A second release of a guard returns the result of the first one, so it is forgotten.
    Guard guard = words[0].equals("release") ? guards.remove(name(words)) : guards.get(name(words));
    if (guard == null) return CompletableFuture.completedFuture("0"); // the token of another grant
    return CompletableFuture.supplyAsync(() -> call.apply(guard), workers).handle(Agent::orFailure);
  }

  private static String name(String[] words) {
    return words[1] + " " + words[2] + " " + words[3];
  }

  private static Object[] command(String[] words) {
    return Arrays.copyOfRange(words, 4, words.length, Object[].class);
  }

  private static String text(Object reply) {
    return reply instanceof byte[] bytes ? new String(bytes, UTF_8) : String.valueOf(reply);
  }

  private static String orFailure(String answer, Throwable failed) {
    if (failed == null) return answer;
    Throwable cause = failed instanceof CompletionException ? failed.getCause() : failed;
    return cause instanceof CancellationException
        ? "cancelled" : ("error " + kind(cause) + " " + cause).replace('\n', ' ');
  }

  /** The word of the table of errors. */
  private static String kind(Throwable error) {
    if (error instanceof LockLostException) return "lost";
    if (error instanceof UnheardException) return "unheard";
    if (error instanceof LockClosedException) return "closed";
    if (error instanceof NoSemaphoreException) return "no-semaphore";
    return error instanceof IllegalArgumentException ? "usage" : "other";
  }

  private static Duration millis(String text) {
    return Duration.ofMillis(Long.parseLong(text));
  }
}
