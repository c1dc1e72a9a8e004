package lockbench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The arithmetic between what is measured and what is written. */
class FiguresTest {
  private static final Job JOB = Job.PAIRS.get(0);

  @Test
  void commandsAreCountedSinceAnEarlierLook() {
    String then = "cmdstat_del:calls=5,usec=9\r\nused_cpu_user:1.5\r\nused_cpu_sys:0.5\r\n";
    String now =
        "cmdstat_del:calls=7,usec=12,usec_per_call=2\r\ncmdstat_info:calls=3,usec=900\r\n"
            + "cmdstat_evalsha:calls=4,usec=40\r\ncmdstat_lock.acquire:calls=1,usec=2\r\n"
            + "cmdstat_get:calls=0,usec=0\r\n"
            + "used_cpu_user:2.0\r\nused_cpu_sys:1.0\r\ntotal_net_input_bytes:80\r\n";
    Counters spent = Counters.of(now, 70).since(Counters.of(then, 20));
    assertEquals(1e6, spent.serverUs());
    assertEquals(0.5e6, spent.serverUserUs());
    assertEquals(50, spent.clientUs());
    assertEquals(80, spent.bytes());
    assertEquals(7, spent.calls());
    assertEquals(new Counters.Command(5, 42), spent.lockCalls());
    assertEquals(new Counters.Command(2, 3), spent.command("del"));
    assertEquals(Counters.Command.NEVER, spent.command("get"));
  }

  @Test
  void aSampleIsOfOnePair() {
    Counters spent =
        Counters.of("used_cpu_user:0.25\r\ncmdstat_evalsha:calls=8,usec=80\r\n", 500e3);
    Sample sample = Sample.of(new long[] {4_000_000, 1_000_000, 3_000_000, 2_000_000}, 0.5, spent);
    assertEquals(8, sample.pairsPerS());
    assertEquals(3, sample.p50Ms());
    assertEquals(4, sample.p99Ms());
    assertEquals(62_500, sample.serverUs());
    assertEquals(50, sample.serverBusyPercent());
    assertEquals(100, sample.clientBusyPercent());
    assertEquals(2, sample.lockCalls());
    assertEquals(20, sample.lockCallsUs());
  }

  @Test
  void ratiosAreTakenRoundByRound() {
    Results results = new Results();
    for (double n : new double[] {10, 40, 20}) {
      results.add(JOB, Way.PLAIN, pairsPerS(n));
      results.add(JOB, Way.RAW, pairsPerS(n == 20 ? 30 : 2 * n));
    }
    assertEquals(20, results.median(JOB, Way.PLAIN, Sample::pairsPerS));
    assertEquals(75, results.spreadPercent(JOB, Way.PLAIN, Sample::pairsPerS));
    assertEquals(2, results.ratio(JOB, Way.RAW, Sample::pairsPerS));
  }

  @Test
  void aFailedRoundHasNoFigures() {
    Results results = new Results();
    results.addFailed(JOB, Way.PLAIN);
    results.add(JOB, Way.RAW, pairsPerS(30));
    assertFalse(results.has(JOB, Way.PLAIN));
    assertTrue(Double.isNaN(results.ratio(JOB, Way.RAW, Sample::pairsPerS)));
    results.add(JOB, Way.PLAIN, pairsPerS(10));
    results.add(JOB, Way.RAW, pairsPerS(20));
    assertEquals(1, results.failed(JOB, Way.PLAIN));
    assertEquals(10, results.median(JOB, Way.PLAIN, Sample::pairsPerS));
    assertEquals(2, results.ratio(JOB, Way.RAW, Sample::pairsPerS));
  }

  @Test
  void aRoundThatWouldEndLateIsLeftOut() {
    Effort effort = new Effort(1, 3, 0, 0, 0, 100);
    assertTrue(effort.hasTimeAfter(1, 1_000));
    assertTrue(effort.hasTimeAfter(2, 66));
    assertFalse(effort.hasTimeAfter(2, 68));
  }

  @Test
  void tokensRise() {
    Load.Guarded guarded = new Load.Guarded();
    guarded.enter(7);
    guarded.enter(8);
    assertThrows(IllegalStateException.class, () -> guarded.enter(8));
  }

  @Test
  void threeDigitsMatter() {
    assertEquals("0.041", Cells.number(0.0409));
    assertEquals("1.00", Cells.number(0.9999));
    assertEquals("10.0", Cells.number(9.996));
    assertEquals("100", Cells.number(99.96));
    assertEquals("41,704", Cells.number(41_703.9));
  }

  private static Sample pairsPerS(double n) {
    return new Sample(n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  }
}
