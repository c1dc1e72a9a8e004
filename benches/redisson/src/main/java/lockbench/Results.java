package lockbench;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** What every round found, and the medians of it. */
final class Results {
  private record Point(Job job, Way way) {}

  private final Map<Point, List<Sample>> rounds = new HashMap<>();

  void add(Job job, Way way, Sample sample) {
    rounds.computeIfAbsent(new Point(job, way), point -> new ArrayList<>()).add(sample);
  }

  /** A round in which the client failed: no figures. */
  void addFailed(Job job, Way way) {
    add(job, way, null);
  }

  /** The rounds in which the client failed. */
  long failed(Job job, Way way) {
    return all(job, way).stream().filter(Objects::isNull).count();
  }

  /** Whether this way was measured. */
  boolean has(Job job, Way way) {
    return all(job, way).stream().anyMatch(Objects::nonNull);
  }

  /** How often each way was measured. */
  int rounds() {
    return rounds.values().stream().mapToInt(List::size).max().orElse(0);
  }

  double median(Job job, Way way, ToDoubleFunction<Sample> figure) {
    return median(series(job, way, figure));
  }

  /** Half the distance between the smallest and the largest round, in percent of the median. */
  double spreadPercent(Job job, Way way, ToDoubleFunction<Sample> figure) {
    double[] sorted = series(job, way, figure);
    return 50 * (sorted[sorted.length - 1] - sorted[0]) / median(sorted);
  }

  /** The figure in relation to plain Redisson's, round by round: the median, or NaN without such a round. */
  double ratio(Job job, Way way, ToDoubleFunction<Sample> figure) {
    List<Sample> own = all(job, way);
    List<Sample> base = all(job, Way.PLAIN);
    return median(
        IntStream.range(0, own.size())
            .filter(n -> own.get(n) != null && base.get(n) != null)
            .mapToDouble(n -> figure.applyAsDouble(own.get(n)) / figure.applyAsDouble(base.get(n)))
            .sorted()
            .toArray());
  }

  private double[] series(Job job, Way way, ToDoubleFunction<Sample> figure) {
    Stream<Sample> samples = all(job, way).stream().filter(Objects::nonNull);
    return samples.mapToDouble(figure).sorted().toArray();
  }

  private List<Sample> all(Job job, Way way) {
    return rounds.getOrDefault(new Point(job, way), List.of());
  }

  private static double median(double[] sorted) {
    return sorted.length == 0 ? Double.NaN : sorted[sorted.length / 2];
  }
}
