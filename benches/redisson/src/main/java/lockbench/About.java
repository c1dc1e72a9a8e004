package lockbench;

import java.util.List;
import org.redisson.Redisson;
import redis.clients.jedis.Jedis;

/** What the report says in words: with what was measured, where, how, and what to make of it. */
final class About {
  static final String OF_MAKE =
      """
The same points. Lock calls are EVALSHA, or the commands of the module; commands include those \
that scripts and the module call; messages are reads and writes of the server's sockets.
""";

  private About() {}

  /** The heading and the setting. */
  static String text(Effort effort, int rounds) {
    return """
## Redisson itself

The real client, unmodified, and the module's commands sent raw from Java, by `make bench-redisson`: \
every thread takes a lock and gives it back at once, again and again.

"""
        + Setting.table(effort, rounds, List.of(Redisson.class, Jedis.class));
  }

  static String of(String group) {
    return switch (group) {
      case Job.ALONE -> "Every thread has a lock of its own; all threads share one client.\n";
      case Job.ONE_CLIENT ->
          """
          The threads of one Redisson client share a subscription, and a message wakes one of them.
          """;
      default ->
          """
A hundred threads, spread over one, ten and a hundred clients in one process. A message wakes \
a thread of each Redisson client, and one of them gets the lock. (Raw commands have a \
connection for every thread however they are spread.)
""";
    };
  }

  static final String NOTES =
      """
- Wait: from the call of `lock()`, or the sending of LOCK.ACQUIRE, to its return, of all grants in the \
measured time. A thread that has just unlocked a Redisson lock takes it again before the sleeping threads \
get the message: a low p50 beside a high p99. The module hands the lock off in the order of arrival, so \
every thread waits for all others once.
- Redisson locks with `lock()`, whose watchdog renews a lease of 30 s; LOCK.ACQUIRE has a lease of 30 s. \
Redisson has its defaults but for pools that fit the number of threads, executor threads that its clients \
share, and one event thread for all: on one core it is faster than more.
- Server time is that of its process, the kernel's part included: reading and writing sockets is most of \
it, and no script can be cheaper than the messages around it. Three EXISTS through the same client \
measure these: Redisson's protocol cannot cost less. Where the server is the limit, and \
where messages are pipelined: the first tables above.
- Where the client's core is busy and the server's is not, the pairs/s say little about the server; the \
time of a pair does.
- Every lock guards a counter. After each point the counts are compared with the pairs made: no update \
was lost, or this table would not have been written.
- Medians over the rounds; ± is half the distance between the smallest and the largest round, in percent \
of the median; a ratio is the median of the rounds' ratios to Redisson on a plain server.
""";
}
