package lockbench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import redis.clients.jedis.Jedis;

/**
 * What the server has counted so far, its CPU time in all and outside the kernel, and what this
 * process has spent. Messages are reads and writes of sockets; published are the pub/sub messages of
 * scripts and of tickets.
 */
record Counters(
    double serverUs,
    double serverUserUs,
    double clientUs,
    double bytes,
    double messages,
    double published,
    Map<String, Command> commands) {

  /** How often a command ran, and for how long in all. */
  record Command(double calls, double us) {
    static final Command NEVER = new Command(0, 0);
  }

  /** A script of Redisson's, or a command of the module. */
  private static final String LOCK_CALL = "eval|evalsha|lock\\..*";

  static Counters read(Jedis connection) {
    OperatingSystemMXBean process =
        ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    return of(connection.info("everything"), process.getProcessCpuTime() / 1e3);
  }

  static Counters of(String info, double clientUs) {
    double userUs = number(info, "used_cpu_user") * 1e6;
    double serverUs = userUs + number(info, "used_cpu_sys") * 1e6;
    double bytes = number(info, "total_net_input_bytes") + number(info, "total_net_output_bytes");
    double messages =
        number(info, "total_reads_processed") + number(info, "total_writes_processed");
    double granted = number(info, "lock_tickets_granted");
    Map<String, Command> commands = commands(info);
    double published = granted + commands.getOrDefault("publish", Command.NEVER).calls;
    return new Counters(serverUs, userUs, clientUs, bytes, messages, published, commands);
  }

  /** What was counted since an earlier look. */
  Counters since(Counters before) {
    Map<String, Command> since = new TreeMap<>();
    commands.forEach(
        (name, now) -> {
          Command then = before.command(name);
          if (now.calls > then.calls) {
            since.put(name, new Command(now.calls - then.calls, now.us - then.us));
          }
        });
    return new Counters(
        serverUs - before.serverUs,
        serverUserUs - before.serverUserUs,
        clientUs - before.clientUs,
        bytes - before.bytes,
        messages - before.messages,
        published - before.published,
        since);
  }

  Command command(String name) {
    return commands.getOrDefault(name, Command.NEVER);
  }

  /** All commands, those that scripts called included. */
  double calls() {
    return commands.values().stream().mapToDouble(Command::calls).sum();
  }

  /** The calls that ask for a lock, give it back or renew it. */
  Command lockCalls() {
    return commands.entrySet().stream()
        .filter(entry -> entry.getKey().matches(LOCK_CALL))
        .map(Map.Entry::getValue)
        .reduce(Command.NEVER, (a, b) -> new Command(a.calls + b.calls, a.us + b.us));
  }

  static Optional<String> field(String info, String name) {
    return info.lines()
        .filter(line -> line.startsWith(name + ":"))
        .map(line -> line.substring(name.length() + 1).strip())
        .findFirst();
  }

  static double number(String info, String name) {
    return field(info, name).map(Double::parseDouble).orElse(0.0);
  }

  /** Every command but INFO, which is our own. */
  private static Map<String, Command> commands(String info) {
    Map<String, Command> commands = new TreeMap<>();
    info.lines()
        .filter(line -> line.startsWith("cmdstat_"))
        .map(line -> line.substring("cmdstat_".length()).split(":calls=|,usec=|,", 4))
        .filter(parts -> !parts[0].equals("info"))
        .forEach(parts -> commands.put(parts[0], command(parts[1], parts[2])));
    return commands;
  }

  private static Command command(String calls, String us) {
    return new Command(Double.parseDouble(calls), Double.parseDouble(us));
  }
}
