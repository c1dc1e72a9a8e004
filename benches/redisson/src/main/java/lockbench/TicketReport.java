package lockbench;

import io.lettuce.core.RedisClient;
import java.util.List;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;
import org.redisson.Redisson;
import redis.clients.jedis.Jedis;

/** The section on waits without a connection: its setting, two tables, and notes. */
final class TicketReport {
  private static final List<String> SPEED =
      List.of(
          "a pair by",
          "pairs/s",
          "±%",
          "pairs/s : Redisson",
          "wait p50 ms",
          "p99 ms",
          "threads granted %",
          "server µs/pair",
          "±%",
          "µs : Redisson");

  private static final List<String> PARTS =
      List.of(
          "a pair by",
          "lock calls",
          "commands",
          "pub/sub messages",
          "reads and writes",
          "bytes",
          "server busy %",
          "client busy %",
          "connections",
          "used_memory kB");

  private final Results results;
  private final Effort effort;

  TicketReport(Results results, Effort effort) {
    this.results = results;
    this.effort = effort;
  }

  String markdown() {
    return HEAD
        + Setting.table(effort, results.rounds(), List.of(RedisClient.class, Redisson.class, Jedis.class))
        + SPEED_HEAD
        + new Table(SPEED, this::speed).of(results, Job.TICKETS, Job::name)
        + PARTS_HEAD
        + new Table(PARTS, this::parts).of(results, Job.TICKETS, Job::name)
        + NOTES
        + failures();
  }

  private String failures() {
    StringBuilder text = new StringBuilder();
    for (Job job : Job.TICKETS) {
      long failed = results.failed(job, Way.PLAIN);
      if (failed > 0) {
        String note =
            "- Redisson failed with %s in %d of %d rounds, which are not among its figures: a thread got an exception "
                + "from `lock()` or `unlock()`.\n";
        text.append(note.formatted(job.name(), failed, results.rounds()));
      }
    }
    return text.toString();
  }

  private Stream<String> speed(Job job, Way way) {
    return Stream.of(
        Cells.whole(results.median(job, way, Sample::pairsPerS)),
        Cells.whole(results.spreadPercent(job, way, Sample::pairsPerS)),
        Cells.number(results.ratio(job, way, Sample::pairsPerS)),
        Cells.number(results.median(job, way, Sample::p50Ms)),
        Cells.number(results.median(job, way, Sample::p99Ms)),
        Cells.whole(results.median(job, way, Sample::servedPercent)),
        Cells.number(results.median(job, way, Sample::serverUs)),
        Cells.whole(results.spreadPercent(job, way, Sample::serverUs)),
        Cells.number(results.ratio(job, way, Sample::serverUs)));
  }

  private Stream<String> parts(Job job, Way way) {
    return Stream.<ToDoubleFunction<Sample>>of(
            Sample::lockCalls,
            Sample::commands,
            Sample::published,
            Sample::messages,
            Sample::bytes,
            Sample::serverBusyPercent,
            Sample::clientBusyPercent,
            Sample::connections,
            Sample::waitingKb)
        .map(figure -> Cells.number(results.median(job, way, figure)));
  }

  private static final String HEAD =
      """
### Redisson: waits by tickets

All threads of one process take one lock and give it back at once, again and again: by \
[tickets](../../docs/COMMANDS.md#waiting-without-a-connection) through one client of Lettuce, with Redisson, and by parked \
requests. `make bench-redisson PART=tickets` writes this subsection alone.

""";

  private static final String SPEED_HEAD =
      """

Threads granted: the share of threads that had the lock at least once in the measured time.

""";

  private static final String PARTS_HEAD =
      """

The same points: parts of a pair, and the cost of waiting. Lock calls are EVALSHA, or the commands of the module; \
commands include those that scripts and the module call (for a ticket `PUBSUB NUMSUB`, at the request and at the \
grant); reads and writes are those of the server's sockets. The last two columns are of the moment when all threads \
wait: the connections of the process, and `used_memory` beyond that of the same server without clients.

""";

  private static final String NOTES =
      """

- Tickets: one connection for the commands of all threads, one for the subscription; each thread sends a command and \
waits for its reply. The client renews a grant that came as a message before it returns from `lock()`, as \
[COMMANDS.md](../../docs/COMMANDS.md#waiting-without-a-connection) asks; the rows without LOCK.RENEW show the price of that. \
The code is `TicketClient.java` in benches/redisson.
- Redisson locks with `lock()` on a server without the module. Its pools are the defaults: at most 64 connections for \
commands, 24 at the start, and one for the subscription here. Changed are the timeout of commands (30 s, default 3 s) \
and the event threads (1, default 32: on one core it is faster than more). Lettuce has its defaults, with two event \
threads, the fewest that it allows.
- LOCK.ACQUIRE BLOCK: a connection for each thread, by Jedis. 10,000 of them are more than the default of `maxclients` \
allows beside other clients.
- The threads are threads of the operating system with stacks of 256 kB, with every JDK: Java 17 has no virtual \
threads. They start 250 at a time; the next start when those wait.
- Wait: from the call of `lock()` to its return, of all grants in the measured time. A wait that does not end in that \
time is not among the figures: threads granted shows how many do not. The module grants in the order of arrival: with \
n threads, each waits for n - 1 pairs of others.
- Redisson's lease is 30 s, renewed by its watchdog; that of the others is 600 s. A holder counts in two steps while it \
has the lock, and checks that its token is above the one before. After each point the counts are compared with the \
pairs made: no two threads had the lock at a time, or this table would not have been written.
- Medians over the rounds; ± is half the distance between the smallest and the largest round, in percent of the \
median; a ratio is the median of the rounds' ratios to Redisson. Every way has a server of its own in every round; the \
ways take turns in being first.
""";
}
