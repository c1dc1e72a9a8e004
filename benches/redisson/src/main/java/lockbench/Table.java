package lockbench;

import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;

/** A table of the page: a row for each way that did a job. */
record Table(List<String> columns, Row row) {
  /** The cells behind the name of the row. */
  interface Row {
    Stream<String> cells(Job job, Way way);
  }

  /** With rows of these jobs, named "JOB: WAY". */
  String of(Results results, List<Job> jobs, Function<Job, String> name) {
    StringBuilder text = new StringBuilder(Cells.head(columns));
    for (Job job : jobs) {
      Arrays.stream(Way.values())
          .filter(way -> results.has(job, way))
          .map(way -> Stream.concat(Stream.of(name.apply(job) + ": " + way.label), row.cells(job, way)))
          .forEach(cells -> text.append(Cells.row(cells.toList())));
    }
    return text.toString();
  }
}
