import java.io.BufferedReader;
import java.io.InputStreamReader;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisException;

/** The agent of Jedis: reads orders, writes answers, as driver/agent.rs lists them. */
final class Agent {
  private final Locks locks;

  private Agent(String host, int port) {
    var config = DefaultJedisClientConfig.builder().blockingSocketTimeoutMillis(5_000).build();
    locks = new Locks(RedisClient.builder().hostAndPort(host, port).clientConfig(config).build());
  }

  public static void main(String[] args) throws Exception {
    var agent = new Agent(args[0], Integer.parseInt(args[1]));
    var orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (var line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
      try {
        System.out.println(agent.answer(line.split(" ")));
      } catch (JedisException failed) {
        System.out.println("error " + failed.getMessage().replace('\n', ' '));
      }
    }
    System.exit(0);
  }

  private String answer(String[] o) {
    return switch (o[0]) {
      case "acquire" -> token(locks.acquire(o[1], o[2], Long.parseLong(o[3]), Long.parseLong(o[4])));
      case "renew" -> locks.renew(o[1], o[2], Long.parseLong(o[3]), Long.parseLong(o[4])) ? "1" : "0";
      default -> locks.release(o[1], o[2], Long.parseLong(o[3])) ? "1" : "0";
    };
  }

  private static String token(Object token) {
    return token == null ? "nil" : "token " + token;
  }
}
