package lockbench;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;

/** What every round found, and the medians of it. */
final class Results {
  private record Point(Job job, Way way) {}

  private final Map<Point, List<Sample>> rounds = new HashMap<>();

  void add(Job job, Way way, Sample sample) {
    rounds.computeIfAbsent(new Point(job, way), point -> new ArrayList<>()).add(sample);
  }

  /** Whether this way was measured. */
  boolean has(Job job, Way way) {
    return rounds.containsKey(new Point(job, way));
  }

  double median(Job job, Way way, ToDoubleFunction<Sample> figure) {
    return median(series(job, way, figure));
  }

  /** Half the distance between the smallest and the largest round, in percent of the median. */
  double spreadPercent(Job job, Way way, ToDoubleFunction<Sample> figure) {
    double[] sorted = series(job, way, figure);
    return 50 * (sorted[sorted.length - 1] - sorted[0]) / median(sorted);
  }

  /** The figure in relation to plain Redisson's, round by round: the median. */
  double ratio(Job job, Way way, ToDoubleFunction<Sample> figure) {
    List<Sample> own = rounds.get(new Point(job, way));
    List<Sample> base = rounds.get(new Point(job, Way.PLAIN));
    return median(
        IntStream.range(0, own.size())
            .mapToDouble(n -> figure.applyAsDouble(own.get(n)) / figure.applyAsDouble(base.get(n)))
            .sorted()
            .toArray());
  }

  private double[] series(Job job, Way way, ToDoubleFunction<Sample> figure) {
    return rounds.get(new Point(job, way)).stream().mapToDouble(figure).sorted().toArray();
  }

  private static double median(double[] sorted) {
    return sorted[sorted.length / 2];
  }
}
