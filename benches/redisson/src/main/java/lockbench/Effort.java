package lockbench;

/** How often and how long everything is measured; the first rounds only warm the JVM up. */
record Effort(int thrownAway, int rounds, long warmUpMs, long measuredMs) {
  static final Effort FULL = new Effort(2, 5, 300, 1_500);
  static final Effort QUICK = new Effort(1, 3, 100, 300);

  String inWords() {
    return String.format(
        "%d rounds, before them %d thrown away for the JVM to warm up; each point %s s in each of"
            + " them, after %s s",
        rounds, thrownAway, measuredMs / 1e3, warmUpMs / 1e3);
  }
}
