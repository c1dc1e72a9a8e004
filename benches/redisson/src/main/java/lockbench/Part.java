package lockbench;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/** The parts of the bench. Each has jobs, a section of the page, and marks around that section. */
enum Part {
  REDISSON(Job.PAIRS, Effort.FULL, Effort.QUICK),
  TICKETS(Job.TICKETS, Effort.TICKETS, Effort.QUICK_TICKETS);

  final List<Job> jobs;
  private final Effort full;
  private final Effort quick;

  Part(List<Job> jobs, Effort full, Effort quick) {
    this.jobs = jobs;
    this.full = full;
    this.quick = quick;
  }

  /** In arguments and in the marks of the page: "tickets". */
  String mark() {
    return name().toLowerCase(Locale.ROOT);
  }

  Effort effort(boolean quick) {
    return quick ? this.quick : full;
  }

  /** The ways to the lock that do any of its jobs. */
  List<Way> ways() {
    return Arrays.stream(Way.values()).filter(way -> jobs.stream().anyMatch(way::does)).toList();
  }
}
