import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.*;
import java.util.logging.LogManager;

/** The agent of Lettuce's tickets: the orders of driver/ticket_agent.rs. */
final class TicketsAgent {
  private final Map<String, Future<Long>> running = new ConcurrentHashMap<>();
  private final Tickets tickets;

  private TicketsAgent(String uri, String shard) {
    if (shard.isEmpty()) tickets = new Tickets(RedisClient.create(uri).connectPubSub(), shard);
    else tickets = new Tickets(RedisClusterClient.create(uri).connectPubSub(), shard);
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset(); // that it reconnects is no news here
    var agent = new TicketsAgent("redis://" + args[0] + ":" + args[1], args.length > 3 ? args[3] : "");
    var orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (var line = orders.readLine(); line != null; line = orders.readLine()) agent.begin(line.split(" "));
    System.exit(0);
  }

  private void begin(String[] o) {
    switch (o[1]) {
      case "acquire" -> {
        var wait = tickets.acquire(o[2], o[3], Long.parseLong(o[4]), Long.parseLong(o[5]));
        running.put(o[0], wait);
        say(o[0], wait.thenApply(token -> token == null ? "nil" : "token " + token));
      }
      case "cancel" -> running.get(o[2]).cancel(false);
      case "renew" -> say(o[0], tickets.renew(o[2], o[3], Long.parseLong(o[4]), Long.parseLong(o[5])).thenApply(TicketsAgent::bit));
      default -> say(o[0], tickets.release(o[2], o[3], Long.parseLong(o[4])).thenApply(TicketsAgent::bit));
    }
  }

  private static void say(String id, CompletableFuture<String> answer) {
    answer.exceptionally(TicketsAgent::failure).thenAccept(text -> System.out.println(id + " " + text.replace('\n', ' ')));
  }

  private static String failure(Throwable failed) {
    var cause = failed instanceof CompletionException ? failed.getCause() : failed;
    return cause instanceof CancellationException ? "cancelled" : "error " + cause;
  }

  private static String bit(boolean yes) {
    return yes ? "1" : "0";
  }
}
