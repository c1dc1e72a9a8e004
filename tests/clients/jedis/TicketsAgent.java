import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisException;

/** The agent of Jedis' tickets: the orders of driver/ticket_agent.rs, each in a thread. */
final class TicketsAgent {
  private final Map<String, Thread> running = new ConcurrentHashMap<>();
  private final Tickets tickets;

  private TicketsAgent(String host, int port, String shard) {
    tickets = new Tickets(shard.isEmpty() ? client(host, port) : clusterClient(host, port), shard);
  }

  private static UnifiedJedis client(String host, int port) {
    var pool = new ConnectionPoolConfig();
    pool.setMaxTotal(2);
    return RedisClient.builder().hostAndPort(host, port).poolConfig(pool).build();
  }

  private static UnifiedJedis clusterClient(String host, int port) {
    return RedisClusterClient.create(new HostAndPort(host, port));
  }

  public static void main(String[] args) throws Exception {
    var agent = new TicketsAgent(args[0], Integer.parseInt(args[1]), args.length > 3 ? args[3] : "");
    var orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (var line = orders.readLine(); line != null; line = orders.readLine()) {
      var order = line.split(" ");
      if (order[1].equals("cancel")) agent.running.get(order[2]).interrupt();
      else agent.begin(order);
    }
    System.exit(0);
  }

  private void begin(String[] order) {
    var thread = new Thread(() -> System.out.println(order[0] + " " + answer(order).replace('\n', ' ')));
    running.put(order[0], thread);
    thread.start();
  }

  private String answer(String[] o) {
    try {
      return switch (o[1]) {
        case "acquire" -> token(tickets.acquire(o[2], o[3], Long.parseLong(o[4]), Long.parseLong(o[5])));
        case "renew" -> tickets.renew(o[2], o[3], Long.parseLong(o[4]), Long.parseLong(o[5])) ? "1" : "0";
        default -> tickets.release(o[2], o[3], Long.parseLong(o[4])) ? "1" : "0";
      };
    } catch (JedisException failed) {
      return "error " + failed.getMessage();
    } catch (InterruptedException givenUp) {
      return "cancelled";
    }
  }

  private static String token(Object token) {
    return token == null ? "nil" : "token " + token;
  }
}
