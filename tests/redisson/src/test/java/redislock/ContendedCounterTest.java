package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Mutual exclusion: one counter, one lock, five processes. Owners of both sides increment it by
 * reading and writing; not one increment may be lost.
 */
class ContendedCounterTest {
  private static final int ROUNDS = 500;

  /** Changes of side among the grants, without which the sides would not have met. */
  private static final int LEAST_CHANGES = 1_000;

  @RegisterExtension final Stage stage = new Stage();

  @Test
  void mixedOwnersInSeveralProcessesLoseNoUpdate() {
    Server server = stage.server();
    List<WorkerProcess> workers = new ArrayList<>();
    int acquisitions = 0;
    for (String[] kind :
        new String[][] {
          {"redisson", "4"}, {"module", "1"}, {"both", "5"}, {"both", "5"}, {"both", "5"}
        }) {
      String rounds = "" + ROUNDS;
      String port = "" + server.port;
      workers.add(stage.add(new WorkerProcess(Worker.class, port, kind[0], kind[1], rounds)));
      acquisitions += ROUNDS * Integer.parseInt(kind[1]);
    }
    workers.forEach(WorkerProcess::awaitReady);
    long begun = System.nanoTime();
    workers.forEach(WorkerProcess::go);
    Conn conn = server.conn();
    workers.forEach(worker -> worker.awaitDone(() -> counter(conn)));
    long millis = (System.nanoTime() - begun) / 1_000_000;
    long lost = acquisitions - counter(conn);
    report(acquisitions, lost, millis, grants(conn));
    assertEquals(0, lost);
    assertEquals(0L, conn.call("EXISTS", Side.LOCK));
    assertTrue(acquisitions >= 10_000);
    assertTrue(changes(grants(conn)) >= LEAST_CHANGES, "the sides hardly met");
  }

  private static long counter(Conn conn) {
    Object number = conn.call("GET", Worker.COUNTER);
    return number == null ? 0 : Long.parseLong((String) number);
  }

  private static List<?> grants(Conn conn) {
    return (List<?>) conn.call("LRANGE", Worker.GRANTS, "0", "-1");
  }

  private static void report(int acquisitions, long lost, long millis, List<?> grants) {
    long ours = grants.stream().filter("M"::equals).count();
    System.out.printf(
        "measured with Redisson %s: %d acquisitions (%d by the module, %d changes of side), "
            + "%d lost updates, %d ms%n",
        System.getProperty("tested.version"), acquisitions, ours, changes(grants), lost, millis);
  }

  /** How often the next holder was on the other side. */
  private static int changes(List<?> grants) {
    int changes = 0;
    for (int i = 1; i < grants.size(); i++) {
      changes += grants.get(i).equals(grants.get(i - 1)) ? 0 : 1;
    }
    return changes;
  }
}
