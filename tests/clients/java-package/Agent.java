import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.logging.LogManager;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockOptions;
import redislock.Released;

/** The agent of the Java package: the orders of driver/ticket_agent.rs. */
final class Agent {
  private final ExecutorService workers = Executors.newCachedThreadPool();
  private final Map<String, CompletableFuture<?>> waits = new ConcurrentHashMap<>();
  private final Map<String, Guard> guards = new ConcurrentHashMap<>();
  private final LockClient client;

  private Agent(LockClient client) {
    this.client = client;
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset(); // a reconnection is expected here
    String scheme = args.length > 3 ? "redis+cluster://" : "redis://";
    Agent agent = new Agent(LockClient.create(scheme + args[0] + ":" + args[1]));
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (String line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
      String id = line.substring(0, line.indexOf(' '));
      String order = line.substring(id.length() + 1);
      agent.answer(order.split(" "), id).thenAccept(answer -> {
        if (answer != null) System.out.println(id + " " + answer);
      });
    }
    System.exit(0);
  }

  /** The answer to an order; null where the order has none. */
  private CompletableFuture<String> answer(String[] words, String id) {
    return switch (words[0]) {
      case "acquire" -> acquire(words, id).handle(Agent::orFailure);
      case "cancel" -> {
        waits.get(words[1]).cancel(true);
        yield CompletableFuture.completedFuture(null);
      }
      case "renew" -> later(words, guard -> guard.renew(millis(words[4])));
      case "release" -> later(words, guard -> guard.release() == Released.YES);
      default -> CompletableFuture.completedFuture("error no order: " + words[0]);
    };
  }

  private CompletableFuture<String> acquire(String[] words, String id) {
    LockOptions options = LockOptions.defaults().owner(words[2]).lease(millis(words[4]));
    CompletableFuture<Optional<Guard>> wait = client.lock(words[1], options).acquireAsync(millis(words[3]));
    waits.put(id, wait);
    return wait.thenApply(granted -> {
      granted.ifPresent(guard -> guards.put(words[1] + " " + words[2] + " " + guard.token(), guard));
      return granted.map(guard -> "token " + guard.token()).orElse("nil");
    });
  }

  /** Runs what waits for the server outside of the thread that reads the orders. */
  private CompletableFuture<String> later(String[] words, java.util.function.Predicate<Guard> call) {
    String name = words[1] + " " + words[2] + " " + words[3];
    // A second release of a guard returns the result of the first one, so it is forgotten.
    Guard guard = words[0].equals("release") ? guards.remove(name) : guards.get(name);
    if (guard == null) return CompletableFuture.completedFuture("0"); // the token of another grant
    return CompletableFuture.supplyAsync(() -> call.test(guard) ? "1" : "0", workers).handle(Agent::orFailure);
  }

  private static String orFailure(String answer, Throwable failed) {
    if (failed == null) return answer;
    Throwable cause = failed instanceof CompletionException ? failed.getCause() : failed;
    return cause instanceof CancellationException ? "cancelled" : ("error " + cause).replace('\n', ' ');
  }

  private static Duration millis(String text) {
    return Duration.ofMillis(Long.parseLong(text));
  }
}
