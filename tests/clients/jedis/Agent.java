import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CompletableFuture;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisException;

/** The agent of Jedis: reads orders, writes answers, as driver/agent.rs lists them. */
final class Agent {
  private final Locks locks;
  private final RedisClient plain;

  private Agent(String host, int port) {
    var config = DefaultJedisClientConfig.builder().blockingSocketTimeoutMillis(5_000).build();
    locks = new Locks(RedisClient.builder().hostAndPort(host, port).clientConfig(config).build());
    plain = RedisClient.create(host, port);
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
      case "release" -> locks.release(o[1], o[2], Long.parseLong(o[3])) ? "1" : "0";
      case "raw" -> token(raw(o));
      default -> "ping " + pingBehind(o);
    };
  }

  private Object raw(String[] o) {
    return plain.sendCommand("LOCK.ACQUIRE"::getBytes, o[2], o[3], "BLOCK", o[1]);
  }

  private long pingBehind(String[] o) {
    var waiter = CompletableFuture.runAsync(() -> raw(o));
    while (plain.getPool().getNumActive() == 0) Thread.onSpinWait();
    long start = System.nanoTime();
    plain.ping();
    long took = (System.nanoTime() - start) / 1_000_000;
    waiter.exceptionally(failed -> null).join(); // only the PING is measured
    return took;
  }

  private static String token(Object token) {
    return token == null ? "nil" : "token " + token;
  }
}
