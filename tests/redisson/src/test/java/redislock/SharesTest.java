package redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.redisson.api.RLock;

/**
 * Ten Redisson instances and ten clients of the module on one lock, always: the setting
 * lock.free-after gives both sides their shares.
 *
 * <p>Whom of its own a Redisson instance passes over is between them, since none of them queues:
 * that is told, not asserted. So is by how many a client of the module is passed over, since scripts
 * that come in the turn of an unlock come before the line.
 */
class SharesTest {
  private static final int EACH = 10;
  private static final int GRANTS = Integer.getInteger("tested.grants");
  private static final int FEWER_GRANTS = 3_000;
  private static final int LEAST_PERCENT = 30;
  private static final int MOST_PASSED = 200;
  private static final long LIMIT_SECONDS = 600;

  @RegisterExtension final Stage stage = new Stage();

  @Test
  void eachSideHasAThirdAndNeitherIsPassedOverTooOften() throws InterruptedException {
    Crowd crowd = play(1, GRANTS);
    assertTrue(percent(crowd.redisson(), GRANTS) >= LEAST_PERCENT, "Redisson's share");
    assertTrue(percent(crowd.module(), GRANTS) >= LEAST_PERCENT, "the module's share");
    assertTrue(crowd.redisson().mostInARow.get() <= MOST_PASSED, "Redisson's instances, together");
  }

  @ParameterizedTest
  @ValueSource(ints = {10, 100})
  void fewerTurnsCostFewerTriesInVain(int freeAfter) throws InterruptedException {
    Crowd crowd = play(freeAfter, FEWER_GRANTS);
    assertTrue(crowd.redisson().grants.get() > 0, "Redisson has its turns");
  }

  private Crowd play(int freeAfter, int grants) throws InterruptedException {
    Server server = stage.server("--lock.free-after", "" + freeAfter);
    Crowd crowd = stage.add(new Crowd(grants));
    for (int i = 0; i < EACH; i++) {
      Flow flow = stage.redisson(server);
      RLock other = flow.lock("another");
      flow.run(other::lock);
      flow.run(other::unlock);
      crowd.addRedisson(Side.redisson(flow.lock(Side.LOCK)));
      crowd.addModule(Side.module(server.conn(), "module:" + i));
    }
    long scripts = Scripts.calls(server);
    crowd.begin();
    long begun = System.nanoTime();
    crowd.awaitEnd(LIMIT_SECONDS);
    long millis = (System.nanoTime() - begun) / 1_000_000;
    report(freeAfter, crowd, Scripts.calls(server) - scripts, millis);
    return crowd;
  }

  private static void report(int freeAfter, Crowd crowd, long scripts, long millis) {
    Crowd.Count redisson = crowd.redisson();
    Crowd.Count module = crowd.module();
    int all = redisson.grants.get() + module.grants.get();
    // Every grant of Redisson's is one script to acquire and one to unlock; the others were in
    // vain.
    long inVain = scripts - 2L * redisson.grants.get();
    System.out.printf(
        "measured with Redisson %s, lock.free-after %d: %d grants in %d ms, Redisson %d %%,"
            + " %.2f tries in vain a grant; passed over at most: a Redisson instance %d (all of them"
            + " together %d), a client of the module %d; longest waits %d and %d ms%n",
        System.getProperty("tested.version"),
        freeAfter,
        all,
        millis,
        percent(redisson, all),
        (double) inVain / all,
        redisson.mostPassed.get(),
        redisson.mostInARow.get(),
        module.mostPassed.get(),
        redisson.longestMs.get(),
        module.longestMs.get());
  }

  private static int percent(Crowd.Count count, int all) {
    return 100 * count.grants.get() / all;
  }
}
