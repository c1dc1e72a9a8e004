package lockbench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * `make bench-redisson`: the real Redisson beside the module. In every round each way gets a server
 * of its own and does all jobs; the ways take turns in being first.
 */
public final class Main {
  private static final Path PAGE = Path.of("docs/BENCHMARKS.md");

  /** A trial's figures do not replace measured ones. */
  private static final Path TRIAL = Path.of("target/BENCHMARKS-REDISSON-trial.md");

  /** Netty warns of a hundred clients in one process. It is right, and they are wanted here. */
  private static final Logger TIMERS = Logger.getLogger("io.netty.util.HashedWheelTimer");

  private final Effort effort;
  private final Results results = new Results();
  private final Set<Way> leftOut = new TreeSet<>();

  private Main(Effort effort) {
    this.effort = effort;
  }

  public static void main(String[] args) throws IOException, InterruptedException {
    boolean quick = List.of(args).equals(List.of("quick"));
    if (args.length > 0 && !quick) {
      throw new IllegalArgumentException("usage: bench.jar [quick]");
    }
    TIMERS.setLevel(Level.OFF);
    Main bench = new Main(quick ? Effort.QUICK : Effort.FULL);
    bench.measure();
    bench.write(quick ? TRIAL : PAGE);
  }

  private void measure() throws IOException, InterruptedException {
    for (int round = -effort.thrownAway(); round < effort.rounds(); round++) {
      for (Way way : inTurn(round + effort.thrownAway())) {
        try (Server server = way.start()) {
          if (server == null) {
            leftOut.add(way);
          } else {
            measure(round, way, server);
          }
        }
      }
    }
  }

  private void measure(int round, Way way, Server server) throws InterruptedException {
    for (Job job : Job.ALL) {
      if (way.does(job)) {
        Sample sample = Load.run(way, server, job, effort);
        System.out.printf(
            "round %d, %s; %s, %s: %.0f pairs/s, p99 %.2f ms, server %.1f us a pair%n",
            round + 1,
            way.label,
            job.group(),
            job.name(),
            sample.pairsPerS(),
            sample.p99Ms(),
            sample.serverUs());
        if (round >= 0) {
          results.add(job, way, sample);
        }
      }
    }
  }

  private static List<Way> inTurn(int round) {
    List<Way> ways = new java.util.ArrayList<>(List.of(Way.values()));
    Collections.rotate(ways, -round);
    return ways;
  }

  private void write(Path path) throws IOException {
    String section = new Report(results, effort, leftOut).markdown();
    System.out.println(section);
    Files.createDirectories(path.toAbsolutePath().getParent());
    String page = Files.exists(path) ? Files.readString(path) : "";
    Files.writeString(path, Page.with(page, section));
    System.out.println("written: " + path);
  }
}
