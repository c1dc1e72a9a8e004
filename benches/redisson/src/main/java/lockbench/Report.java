package lockbench;

import java.util.List;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;

/**
 * The section of the page: what was measured and how, a table for each group of jobs, and notes.
 */
final class Report {
  private static final List<String> SPEED =
      List.of(
          "a pair by",
          "pairs/s",
          "±%",
          "pairs/s : Redisson",
          "wait p50 ms",
          "p99 ms",
          "p99 : Redisson",
          "server µs/pair",
          "±%",
          "µs : Redisson");

  private static final List<String> MAKE =
      List.of(
          "a pair by",
          "lock calls",
          "µs in them",
          "commands",
          "messages",
          "bytes",
          "server µs outside the kernel",
          "server busy %",
          "client busy %");

  private final Results results;
  private final Effort effort;

  Report(Results results, Effort effort) {
    this.results = results;
    this.effort = effort;
  }

  String markdown() {
    StringBuilder text = new StringBuilder(About.text(effort, results.rounds()));
    for (String group : List.of(Job.ALONE, Job.ONE_CLIENT, Job.CLIENTS)) {
      List<Job> jobs = Job.PAIRS.stream().filter(job -> job.group().equals(group)).toList();
      text.append("\n### Redisson: ").append(group).append("\n\n");
      text.append(About.of(group)).append("\n");
      text.append(new Table(SPEED, this::speed).of(results, jobs, Job::name));
    }
    text.append("\n### Redisson: parts of a pair\n\n").append(About.OF_MAKE).append("\n");
    text.append(
        new Table(MAKE, this::make)
            .of(results, Job.PAIRS, job -> job.group() + ", " + job.name()));
    text.append("\n").append(About.NOTES);
    return text.toString();
  }

  private Stream<String> speed(Job job, Way way) {
    return Stream.of(
        Cells.whole(results.median(job, way, Sample::pairsPerS)),
        Cells.whole(results.spreadPercent(job, way, Sample::pairsPerS)),
        Cells.number(results.ratio(job, way, Sample::pairsPerS)),
        Cells.number(results.median(job, way, Sample::p50Ms)),
        Cells.number(results.median(job, way, Sample::p99Ms)),
        Cells.number(results.ratio(job, way, Sample::p99Ms)),
        Cells.number(results.median(job, way, Sample::serverUs)),
        Cells.whole(results.spreadPercent(job, way, Sample::serverUs)),
        Cells.number(results.ratio(job, way, Sample::serverUs)));
  }

  private Stream<String> make(Job job, Way way) {
    return Stream.<ToDoubleFunction<Sample>>of(
            Sample::lockCalls,
            Sample::lockCallsUs,
            Sample::commands,
            Sample::messages,
            Sample::bytes,
            Sample::serverUserUs,
            Sample::serverBusyPercent,
            Sample::clientBusyPercent)
        .map(figure -> Cells.number(results.median(job, way, figure)));
  }
}
