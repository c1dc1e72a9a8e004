package lockbench;

import java.util.List;

/**
 * Who wants which locks: some threads, spread over some clients (for Redisson an instance each,
 * with its own connections and its own subscription), all on one lock or each on a lock of its own.
 */
record Job(String group, String name, int threads, int clients, boolean oneLock) {
  static final String ALONE = "uncontended";
  static final String ONE_CLIENT = "one lock, the threads of one client";
  static final String CLIENTS = "one lock, 100 threads of several clients";

  static final String CROWD = "one lock, waits without a connection";

  /** In the order of the report. */
  static final List<Job> PAIRS =
      List.of(
          new Job(ALONE, "1 thread", 1, 1, false),
          new Job(ALONE, "16 threads", 16, 1, false),
          new Job(ONE_CLIENT, "16 threads", 16, 1, true),
          new Job(ONE_CLIENT, "64 threads", 64, 1, true),
          new Job(CLIENTS, "1 client", 100, 1, true),
          new Job(CLIENTS, "10 clients", 100, 10, true),
          new Job(CLIENTS, "100 clients", 100, 100, true));

  static final List<Job> TICKETS =
      List.of(
          new Job(CROWD, "16 threads", 16, 1, true),
          new Job(CROWD, "64 threads", 64, 1, true),
          new Job(CROWD, "1,000 threads", 1_000, 1, true),
          new Job(CROWD, "10,000 threads", 10_000, 1, true));

  /** Whether the server is looked at while all threads wait. */
  boolean crowd() {
    return group.equals(CROWD);
  }

  /**
   * The lease that LOCK.ACQUIRE asks for. Redisson's is 30 s, and its watchdog renews it; a crowd's
   * lasts until all of it wait, on a busy machine too.
   */
  long leaseMs() {
    return crowd() ? 600_000 : 30_000;
  }

  /** The name of a thread's lock. */
  String lockOf(int thread) {
    return oneLock ? "bench:shared" : "bench:own:" + thread;
  }

  /** The client that a thread belongs to. */
  int clientOf(int thread) {
    return thread % clients;
  }

  int threadsPerClient() {
    return (threads + clients - 1) / clients;
  }
}
