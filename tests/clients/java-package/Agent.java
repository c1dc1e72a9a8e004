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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
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
import java.util.stream.Collectors;
import redislock.FencedLock;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockClosedException;
import redislock.LockException;
import redislock.LockInfo;
import redislock.LockLostException;
import redislock.LockObserver;
import redislock.LockOptions;
import redislock.LostReason;
import redislock.MemoryServer;
import redislock.MultiGuard;
import redislock.MultiLock;
import redislock.NoSemaphoreException;
import redislock.NotReplicatedException;
import redislock.QueueFullException;
import redislock.Released;
import redislock.UnheardException;

/** The agent of the Java package: the orders of driver/ticket_agent.rs. */
final class Agent {
  private final ExecutorService workers = Executors.newCachedThreadPool();
  private final Map<String, CompletableFuture<?>> waits = new ConcurrentHashMap<>();
  private final Map<String, Held> holds = new ConcurrentHashMap<>();
  private final Events events = new Events();
  private final CountDownLatch gate = new CountDownLatch(1); // what `unblock` opens
  private final Logger log = Logger.getLogger("redislock");
  private final String address;
  private final LockClient client;
  private MemoryServer memory; // in place of a server
  private Runnable disconnect; // closes the program's own client

  /** What an acquisition was granted; {@code several}: of several keys, or null. */
  private record Held(Guard first, MultiGuard several) {}

  private Agent(String host, String port, String mode, boolean isCluster) {
    address = "redis://" + host + ":" + port;
    if (mode.equals("double")) {
      memory = new MemoryServer();
      client = memory.client(builder -> builder.observer(events));
    } else if (!mode.equals("own")) {
      String at = isCluster ? address.replace("redis", "redis+cluster") : address;
      client = LockClient.builder(at).observer(events).build();
    } else if (isCluster) {
      RedisClusterClient own = RedisClusterClient.create(address);
      client = LockClient.builder(own).observer(events).build();
      disconnect = own::shutdown;
    } else {
      RedisClient own = RedisClient.create(address);
      client = LockClient.builder(own).observer(events).build();
      disconnect = own::shutdown;
    }
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset(); // a reconnection is expected here
    Agent agent = new Agent(args[0], args[1], args[2], args.length > 3);
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
      String id = line.substring(0, line.indexOf(' '));
      String order = line.substring(id.length() + 1);
      agent.answer(order.split(" +"), id).thenAccept(answer -> {
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
      case "acquire", "keep", "permit" ->
          acquire(words, id).handleAsync((held, failed) -> granted(words, held, failed), workers);
      case "cancel" -> {
        waits.get(words[1]).cancel(true);
        yield CompletableFuture.completedFuture(null);
      }
      case "renew" -> later(words, held -> held.first.renew(millis(words[4])) ? "1" : "0");
      case "release" -> later(words, held -> ended(words, release(held) == Released.YES));
      case "leave" -> later(words, held -> ended(words, leave(held, millis(words[4]))));
      case "resume" -> work(() -> resume(words));
      case "state" -> later(words, held -> validFor(held).isZero() ? "lost" : "held");
      case "info" -> work(() -> info(client.lock(words[1]).info()));
      case "info-permits" -> work(() -> client.semaphore(words[1]).info().map(info -> "info " + info.permits() + " "
          + info.free() + " " + info.held() + " " + info.waiters()).orElse("info nil"));
      case "events" -> work(() -> "events" + events.words(words[1]));
      case "advance" -> work(() -> {
        memory.advance(millis(words[1]));
        return "advanced";
      });
      case "break" -> work(() -> {
        memory.lose(words[1]);
        return "broken";
      });
      case "has-replicas" -> work(() -> {
        memory.replicas(Integer.parseInt(words[1]));
        return "has";
      });
      case "do" -> later(words, held -> "did " + text(held.first.execute(command(words))));
      case "types" -> later(words, held -> types(held.first));
      case "odd" -> work(() -> odd(words[1]));
      case "disconnect" -> work(() -> {
        disconnect.run();
        return "disconnected";
      });
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
      case "lost" -> {
        Held held = holds.get(name(words));
        yield (held.several == null ? held.first.lost() : held.several.lost()).thenApply(lost -> "lost");
      }
      case "close" -> work(() -> {
        client.close();
        return "closed";
      });
      default -> CompletableFuture.completedFuture("error other no order: " + words[0]);
    };
  }

  private CompletableFuture<? extends Optional<?>> acquire(String[] words, String id) {
    boolean isPermit = words[0].equals("permit");
    LockOptions options = options(words, id).owner(words[2]);
    if (words[0].equals("acquire")) options = options.fixedLease();
    Duration wait = millis(words[3]);
    String[] keys = words[1].split(",");
    CompletableFuture<? extends Optional<?>> granted;
    if (keys.length == 1) {
      granted = isPermit ? client.semaphore(keys[0], options).acquireAsync(wait)
          : lock(keys[0], words, options).acquireAsync(wait);
    } else {
      LockOptions each = options;
      MultiLock several = client.multiLock(
          Arrays.stream(keys).map(key -> lock(key, words, each)).toArray(FencedLock[]::new));
      granted = CompletableFuture.supplyAsync(() -> {
        try {
          return several.acquireWithin(wait);
        } catch (InterruptedException ended) {
          throw new IllegalStateException(ended);
        }
      }, workers);
    }
    waits.put(id, granted);
    return granted;
  }

  /** The answer of an acquisition, of which the observer is told twice. */
  private String granted(String[] words, Optional<?> granted, Throwable failed) {
    if (failed == null || cause(failed) instanceof LockException) events.await(words[1], 2);
    if (failed != null) return orFailure(null, failed);
    return granted.map(grant -> grant instanceof MultiGuard all ? new Held(all.members().get(0), all)
        : new Held((Guard) grant, null)).map(held -> {
          holds.put(words[1] + " " + words[2] + " " + held.first.token(), held);
          return "token " + held.first.token();
        }).orElse("nil");
  }

  private FencedLock lock(String key, String[] words, LockOptions options) {
    List<String> more = List.of(words);
    return more.contains("mode=read") ? client.readWriteLock(key, options).readLock()
        : more.contains("mode=write") ? client.readWriteLock(key, options).writeLock() : client.lock(key, options);
  }

  /** Those of an order, its lease among them. */
  private LockOptions options(String[] words, String id) {
    LockOptions options = LockOptions.defaults().lease(millis(words[4]));
    for (String word : Arrays.asList(words).subList(5, words.length)) {
      String value = word.substring(word.indexOf('=') + 1);
      options = switch (word.substring(0, word.indexOf('='))) {
        case "queue" -> options.queue(Integer.parseInt(value));
        case "replicas" -> options.replicas(Integer.parseInt(value));
        case "within" -> options.replicasWithin(millis(value));
        case "note" -> options.note(value);
        case "limit" -> options.limit(Integer.parseInt(value));
        case "count" -> options.count(Integer.parseInt(value));
        case "on-lost" -> options.onLost(lost -> {
          if (value.equals("block")) {
            block(id);
          } else {
            client.close();
            System.out.println(id + " closed");
          }
        });
        default -> options; // "mode" and "permits": what is acquired
      };
    }
    return options;
  }

  private static Released release(Held held) {
    return held.several == null ? held.first.release() : held.several.release();
  }

  private static boolean leave(Held held, Duration rest) {
    return held.several == null ? held.first.leave(rest) : held.several.leave(rest);
  }

  private static Duration validFor(Held held) {
    return held.several == null ? held.first.validFor() : held.several.validFor();
  }

  /** The answer of a release, of which the observer is told once. */
  private String ended(String[] words, boolean wasHeld) {
    if (wasHeld) events.await(words[1], 1);
    return wasHeld ? "1" : "0";
  }

  /** A guard of its own; the former one is forgotten, and renews the same hold until that is released. */
  private String resume(String[] words) {
    LockOptions options = options(words, "");
    long token = Long.parseLong(words[3]);
    Guard guard = List.of(words).contains("permits=yes") ? client.semaphore(words[1], options).resume(words[2], token)
        : lock(words[1], words, options).resume(words[2], token);
    events.await(words[1], 2);
    holds.put(name(words), new Held(guard, null));
    return "token " + token;
  }

  private static String info(LockInfo info) {
    if (info.mode() == null && info.waiters() == 0) return "info nil";
    StringBuilder answer = new StringBuilder("info " + info.mode() + " " + info.waiters());
    info.holders().forEach(each -> answer.append(' ').append(each.owner()).append('/').append(each.token())
        .append('/').append(each.note() == null ? "" : each.note()));
    return answer.toString();
  }

  /** What the observer was told. That happens on several threads, so an answer waits until its events are told. */
  private static final class Events implements LockObserver {
    private record Event(Subject lock, String word) {}

    private final List<Event> told = new ArrayList<>();
    private final Map<String, Integer> expected = new HashMap<>();

    private synchronized void tell(Subject lock, String word) {
      int answer = word.equals("asked") ? told.stream().map(Event::lock).toList().indexOf(lock) : -1;
      told.add(answer < 0 ? told.size() : answer, new Event(lock, word)); // asked for before it was answered
      notifyAll();
    }

    private List<Event> of(String key) {
      return told.stream().filter(each -> each.lock.name().equals(key)).toList();
    }

    /** Waits for so many more events of this key. */
    synchronized void await(String key, int number) {
      int all = key.contains(",") ? 0 : expected.merge(key, number, Integer::sum);
      while (of(key).size() < all) {
        try {
          wait();
        } catch (InterruptedException ended) {
          throw new IllegalStateException(ended);
        }
      }
    }

    synchronized String words(String key) {
      return of(key).stream().map(each -> " " + each.word).collect(Collectors.joining());
    }

    @Override
    public void asked(Subject lock) {
      tell(lock, "asked");
    }

    @Override
    public void answered(Subject lock, boolean granted, Duration waited, RuntimeException error) {
      tell(lock, granted ? "granted" : error == null ? "refused" : "failed");
    }

    @Override
    public void released(Subject lock, Duration held) {
      tell(lock, "released");
    }

    @Override
    public void lost(Subject lock, LostReason reason) {
      tell(lock, "lost");
    }

    @Override
    public void late(Subject lock, Duration by) {
      tell(lock, "late");
    }
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
    Guard guard = holds.values().iterator().next().first;
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

  /** Runs what waits for the server outside of the thread that reads the orders. */
  private CompletableFuture<String> work(Supplier<String> call) {
    return CompletableFuture.supplyAsync(call, workers).handle(Agent::orFailure);
  }

  /** The same about a hold. */
  private CompletableFuture<String> later(String[] words, Function<Held, String> call) {
    // A second release of a guard returns the result of the first one, so it is forgotten.
    Held held = words[0].equals("release") ? holds.remove(name(words)) : holds.get(name(words));
    if (held == null) return CompletableFuture.completedFuture("0"); // the token of another grant
    return work(() -> call.apply(held));
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
    Throwable cause = cause(failed);
    return cause instanceof CancellationException
        ? "cancelled" : ("error " + kind(cause) + " " + cause).replace('\n', ' ');
  }

  private static Throwable cause(Throwable failed) {
    return failed instanceof CompletionException ? failed.getCause() : failed;
  }

  /** The word of the table of errors. */
  private static String kind(Throwable error) {
    if (error instanceof LockLostException) return "lost";
    if (error instanceof UnheardException) return "unheard";
    if (error instanceof LockClosedException) return "closed";
    if (error instanceof NoSemaphoreException) return "no-semaphore";
    if (error instanceof QueueFullException) return "queue-full";
    if (error instanceof NotReplicatedException) return "not-replicated";
    return error instanceof IllegalArgumentException ? "usage" : "other";
  }

  private static Duration millis(String text) {
    return Duration.ofMillis(Long.parseLong(text));
  }
}
