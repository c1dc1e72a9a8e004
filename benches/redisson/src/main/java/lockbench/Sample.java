package lockbench;

import java.util.Arrays;

/** What one way was like on one job in one round; all but the waits and rates are of one pair. */
record Sample(
    double pairsPerS,
    double p50Ms,
    double p99Ms,
    double serverUs,
    double serverUserUs,
    double serverBusyPercent,
    double clientBusyPercent,
    double lockCalls,
    double lockCallsUs,
    double commands,
    double messages,
    double bytes,
    double published,
    double servedPercent,
    double connections,
    double waitingKb) {

  /** Of how long every grant was waited for, in nanoseconds, and what was spent meanwhile. */
  static Sample of(long[] waits, double seconds, Counters spent) {
    if (waits.length == 0) {
      throw new IllegalStateException("nobody had a lock");
    }
    Arrays.sort(waits);
    double pairs = waits.length;
    return new Sample(
        pairs / seconds,
        quantile(waits, 0.50) / 1e6,
        quantile(waits, 0.99) / 1e6,
        spent.serverUs() / pairs,
        spent.serverUserUs() / pairs,
        spent.serverUs() / seconds / 1e4,
        spent.clientUs() / seconds / 1e4,
        spent.lockCalls().calls() / pairs,
        spent.lockCalls().us() / pairs,
        spent.calls() / pairs,
        spent.messages() / pairs,
        spent.bytes() / pairs,
        spent.published() / pairs,
        0,
        0,
        0);
  }

  /** With the share of threads that had the lock in the measured time, and what the waiters cost. */
  Sample with(double servedPercent, Crowd crowd) {
    return new Sample(
        pairsPerS,
        p50Ms,
        p99Ms,
        serverUs,
        serverUserUs,
        serverBusyPercent,
        clientBusyPercent,
        lockCalls,
        lockCallsUs,
        commands,
        messages,
        bytes,
        published,
        servedPercent,
        crowd.connections(),
        crowd.bytes() / 1e3);
  }

  /** Of sorted values, by the nearest rank. */
  static double quantile(long[] sorted, double part) {
    return sorted[(int) Math.round(part * (sorted.length - 1))];
  }
}
