import static java.util.concurrent.TimeUnit.MILLISECONDS;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import java.io.*;
import java.util.logging.LogManager;

/** The agent of Lettuce: reads orders, writes answers, as driver/agent.rs lists them. */
final class Agent {
  private final Locks locks;
  private final StatefulRedisConnection<String, String> plain;

  private Agent(String host, String port) {
    var client = RedisClient.create("redis://" + host + ":" + port + "?timeout=5s");
    locks = new Locks(client, client.connect());
    plain = RedisClient.create("redis://" + host + ":" + port).connect();
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset(); // that it reconnects is no news here
    var agent = new Agent(args[0], args[1]);
    var orders = new BufferedReader(new InputStreamReader(System.in));
    System.out.println("ready");
    for (var line = orders.readLine(); line != null && !line.equals("quit"); line = orders.readLine()) {
      try {
        System.out.println(agent.answer(line.split(" ")));
      } catch (RedisException failed) {
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
      case "raw" -> token(LettuceFutures.awaitOrCancel(raw(o), plain.getTimeout().toMillis(), MILLISECONDS));
      default -> "ping " + pingBehind(o);
    };
  }

  private RedisFuture<Long> raw(String[] o) {
    var words = new CommandArgs<>(StringCodec.UTF8).addKey(o[2]).addValues(o[3], "BLOCK", o[1]);
    return plain.async().dispatch("LOCK.ACQUIRE"::getBytes, new IntegerOutput<>(StringCodec.UTF8), words);
  }

  private long pingBehind(String[] o) {
    raw(o);
    long start = System.nanoTime();
    plain.sync().ping();
    return (System.nanoTime() - start) / 1_000_000;
  }

  private static String token(Object token) {
    return token == null ? "nil" : "token " + token;
  }
}
