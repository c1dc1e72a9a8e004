package clientbench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.redisson.Redisson;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;

/**
 * The process of the contenders in Java. It obeys the orders of python/load.py and python/waiting.py, line by line:
 *
 * <pre>
 * versions                          answers with the libraries
 * cell WAY PORT CONTENDERS CLIENTS PAUSE FILE
 *                                   makes client objects and contenders, and answers "ready", or what failed
 * start, measure, pause             the contenders begin; the beginning and the end of the measured time
 * stop                              ends the contenders; the answer is their figures in JSON
 * open PORT, wait N, heap, finish   as in python/waiting.py
 * </pre>
 */
public final class Main {
  /**
   * Lettuce logs the messages that arrive while a client object is closed. Exceptions of contenders are reported to the
   * bench. Kept in a field: java.util.logging forgets the level of a logger that is collected.
   */
  private static final Logger ROOT = Logger.getLogger("");

  private Cell cell;
  private Waiting waiting;

  private Main() {}

  public static void main(String[] arguments) throws IOException, InterruptedException {
    ROOT.setLevel(Level.OFF);
    new Main().obey();
    Connections.close();
  }

  private void obey() throws IOException, InterruptedException {
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      System.out.println(answer(line.split(" ")));
      System.out.flush();
    }
  }

  private String answer(String[] order) throws IOException, InterruptedException {
    switch (order[0]) {
      case "versions" -> {
        return versions();
      }
      case "cell" -> {
        int port = Integer.parseInt(order[2]);
        int contenders = Integer.parseInt(order[3]);
        int clients = Integer.parseInt(order[4]);
        int pauseMs = Integer.parseInt(order[5]);
        try {
          cell = new Cell(Way.named(order[1]), port, contenders, clients, pauseMs, Path.of(order[6]));
          return "ready";
        } catch (RuntimeException error) {
          error.printStackTrace();
          return error.toString().lines().findFirst().orElse("failed");
        }
      }
      case "start" -> cell.start();
      case "measure" -> cell.measure();
      case "pause" -> cell.pause();
      case "stop" -> {
        return cell.figures();
      }
      case "open" -> waiting = new Waiting(Integer.parseInt(order[1]));
      case "wait" -> waiting.begin(Integer.parseInt(order[1]));
      case "heap" -> {
        return Long.toString(Waiting.heap());
      }
      case "finish" -> {
        return waiting.finish();
      }
      default -> throw new IllegalArgumentException("no order " + order[0]);
    }
    return "done";
  }

  /** Libraries by the names of their jars: "redisson-4.7.0". */
  private static String versions() {
    List<Class<?>> classes = List.of(RedisLockRegistry.class, StringRedisTemplate.class, Redisson.class);
    List<String> jars = classes.stream().map(Main::jar).toList();
    return String.join(", ", jars) + "; Java " + System.getProperty("java.version");
  }

  private static String jar(Class<?> type) {
    Path jar = Path.of(type.getProtectionDomain().getCodeSource().getLocation().getPath());
    return jar.getFileName().toString().replace(".jar", "");
  }
}
