package lockbench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * `make bench-redisson`: the real Redisson beside the module, in two parts. In every round each way
 * gets a server of its own and does all jobs; the ways take turns in being first.
 */
public final class Main {
  private static final Path PAGE = Path.of("benches/results/servers.md");

  /** A trial's figures do not replace measured ones. */
  private static final Path TRIAL = Path.of("target/BENCHMARKS-REDISSON-trial.md");

  /** Netty warns of a hundred clients in one process. It is right, and they are wanted here. */
  private static final Logger TIMERS = Logger.getLogger("io.netty.util.HashedWheelTimer");

  private final Part part;
  private final Effort effort;
  private final Results results = new Results();

  private Main(Part part, boolean quick) {
    this.part = part;
    effort = part.effort(quick);
  }

  public static void main(String[] args) throws IOException, InterruptedException {
    List<String> words = new ArrayList<>(List.of(args));
    boolean quick = words.remove("quick");
    List<Part> parts = Arrays.stream(Part.values()).filter(part -> words.remove(part.mark())).toList();
    if (!words.isEmpty()) {
      throw new IllegalArgumentException("usage: bench.jar [quick] [redisson] [tickets]");
    }
    TIMERS.setLevel(Level.OFF);
    for (Part part : parts.isEmpty() ? List.of(Part.values()) : parts) {
      Main bench = new Main(part, quick);
      bench.measure();
      bench.write(quick ? TRIAL : PAGE);
    }
  }

  private void measure() throws IOException, InterruptedException {
    long began = System.currentTimeMillis();
    for (int round = -effort.thrownAway(); round < effort.rounds(); round++) {
      if (!effort.hasTimeAfter(round + effort.thrownAway(), System.currentTimeMillis() - began)) {
        break;
      }
      for (Way way : inTurn(round + effort.thrownAway())) {
        try (Server server = way.start()) {
          measure(round, way, server);
        }
      }
    }
  }

  private void measure(int round, Way way, Server server) throws InterruptedException {
    for (Job job : part.jobs) {
      if (way.does(job)) {
        String point = "round %d, %s; %s, %s".formatted(round + 1, way.label, job.group(), job.name());
        try {
          Sample sample = Load.run(way, server, job, effort);
          System.out.printf(
              "%s: %.0f pairs/s, p99 %.2f ms, server %.1f us a pair%n",
              point, sample.pairsPerS(), sample.p99Ms(), sample.serverUs());
          if (round >= 0) {
            results.add(job, way, sample);
          }
        } catch (Load.ClientFailed error) {
          if (!job.crowd()) {
            throw error;
          }
          System.out.println(point + ": " + error.getCause());
          if (round >= 0) {
            results.addFailed(job, way);
          }
        }
      }
    }
  }

  private List<Way> inTurn(int round) {
    List<Way> ways = new ArrayList<>(part.ways());
    Collections.rotate(ways, -round);
    return ways;
  }

  private void write(Path path) throws IOException {
    String section =
        switch (part) {
          case REDISSON -> new Report(results, effort).markdown();
          case TICKETS -> new TicketReport(results, effort).markdown();
        };
    System.out.println(section);
    Files.createDirectories(path.toAbsolutePath().getParent());
    String page = Files.exists(path) ? Files.readString(path) : "";
    Files.writeString(path, Page.with(page, part, section));
    System.out.println("written: " + path);
  }
}
