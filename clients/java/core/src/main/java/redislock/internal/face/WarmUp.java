package redislock.internal.face;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import redislock.LockOptions;
import redislock.Mode;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;
import redislock.internal.lock.Acquisition;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Terms;
import redislock.internal.net.Address;
import redislock.internal.net.Connector;
import redislock.internal.net.Network;

/**
 * The first acquisition and release of a process, against a server in its memory: what this loads and starts would
 * otherwise take longer than the bound of the first {@code tryLock()}. It happens once. A failure changes nothing but
 * the duration of the first request.
 */
public final class WarmUp {
    private static final System.Logger LOG = System.getLogger("redislock");
    private static final long LONGEST = 5_000 * Clock.MILLI;
    private static final ReentrantLock ONCE = new ReentrantLock();
    private static boolean isDone;

    private WarmUp() {
    }

    /** Runs it, if it has not run, on the event loops of this connector. */
    public static void of(Connector connector) {
        ONCE.lock();
        try {
            if (!isDone) {
                isDone = true;
                run(connector.rehearsal());
            }
        } catch (RuntimeException | LinkageError failure) {
            LOG.log(System.Logger.Level.DEBUG, "the warm-up has failed", failure);
        } finally {
            ONCE.unlock();
        }
    }

    private static void run(Connector memory) {
        Loop loop = new Loop("redis-lock-start");
        Network network = new Network(Address.parse("redis://localhost"), memory, loop, new Counts(), true);
        try {
            Engine engine = new Engine(network, Runnable::run, Runnable::run, null);
            Terms terms = Terms.of(engine, new byte[] {'k'}, Mode.EXCLUSIVE, LockOptions.defaults());
            CompletableFuture<?> pair = Acquisition.start(List.of(terms), Clock.now()).result()
                    .thenCompose(holds -> holds.get(0).releaseInBackground());
            Blocking.await(pair, LONGEST);
        } finally {
            loop.end();
            network.close();
        }
    }
}
