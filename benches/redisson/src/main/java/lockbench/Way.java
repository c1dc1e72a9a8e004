package lockbench;

import java.io.IOException;
import java.util.List;

/** The ways to the lock that are compared. */
enum Way {
  PLAIN("Redisson, a plain server"),
  LOADED("Redisson, the module loaded"),
  /** Not a lock: what a pair of Redisson's would cost if its scripts cost nothing. */
  MESSAGES("three EXISTS through Redisson: its messages alone"),
  RAW("LOCK.ACQUIRE BLOCK, LOCK.RELEASE"),
  TICKETS("tickets: LOCK.ACQUIRE NOTIFY, LOCK.RENEW, LOCK.RELEASE"),
  UNCONFIRMED("tickets, without LOCK.RENEW");

  final String label;

  Way(String label) {
    this.label = label;
  }

  /** Below the default of maxclients, and what a machine lets one process open. */
  private static final int MOST_CONNECTIONS = 5_000;

  /** Whether there is anything to compare. */
  boolean does(Job job) {
    return switch (this) {
      case PLAIN -> true;
      case LOADED -> !job.crowd();
      case MESSAGES -> !job.oneLock(); // there is no wait
      case RAW -> job.threads() <= MOST_CONNECTIONS;
      case TICKETS, UNCONFIRMED -> job.crowd();
    };
  }

  /** How many threads of a crowd wait: what the server says now, and said before they asked. */
  double waiting(String info, String before) {
    return switch (this) {
      case RAW -> Counters.number(info, "blocked_clients");
      case TICKETS, UNCONFIRMED -> Counters.number(info, "lock_tickets");
      // Redisson asks, subscribes and asks again; then it waits for a message.
      default -> Counters.of(info, 0).since(Counters.of(before, 0)).lockCalls().calls() / 2;
    };
  }

  /** A server that is set up for it. */
  Server start() throws IOException {
    boolean plain = this == PLAIN || this == MESSAGES;
    return new Server(plain ? List.of() : List.of("--loadmodule", Server.module()));
  }

  Locks connect(Server server, Job job) {
    return switch (this) {
      case RAW -> new RawLocks(server, job);
      case TICKETS, UNCONFIRMED -> new TicketLocks(server, job, this == TICKETS);
      case MESSAGES -> new RedissonLocks(server, job, MessagesOnly::new);
      default -> new RedissonLocks(server, job, RedissonLock::new);
    };
  }

  /** Fails when something else was measured than the label says. */
  void check(Counters spent) {
    boolean scripts = spent.command("evalsha").calls() > 0;
    if (scripts != (this == PLAIN || this == LOADED)) {
      throw new IllegalStateException(label + " executed " + spent.commands());
    }
  }
}
