package lockbench;

/**
 * How often and how long everything is measured; the first rounds only warm the JVM up. With many
 * threads a point takes longer: each of them should have the lock once. A round that would end
 * after the most time is left out.
 */
record Effort(int thrownAway, int rounds, long warmUpMs, long measuredMs, double measuredMsPerThread, long mostMs) {
  static final Effort FULL = new Effort(2, 5, 300, 1_500, 0, Long.MAX_VALUE);
  static final Effort QUICK = new Effort(1, 3, 100, 300, 0, Long.MAX_VALUE);
  static final Effort TICKETS = new Effort(1, 3, 200, 1_000, 0.3, 900_000);
  static final Effort QUICK_TICKETS = new Effort(0, 1, 100, 300, 0.3, 300_000);

  long measuredMs(Job job) {
    return Math.max(measuredMs, Math.round(measuredMsPerThread * job.threads()));
  }

  /** Whether so many rounds, the first ones included, leave time for another one. */
  boolean hasTimeAfter(int done, long elapsedMs) {
    return done <= thrownAway || elapsedMs / done <= mostMs - elapsedMs;
  }

  String inWords(int rounds) {
    String longer =
        measuredMsPerThread > 0
            ? String.format(", but at least %s s per 1,000 threads", measuredMsPerThread)
            : "";
    return String.format(
        "%d rounds, before them %d thrown away for the JVM to warm up; each point %s s in each of"
            + " them%s, after %s s",
        rounds, thrownAway, measuredMs / 1e3, longer, warmUpMs / 1e3);
  }
}
