package redislock.internal;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The log of a client, in a thread of its own: a handler of the program may block, and the thread that logs a loss or
 * an outage is the one that renews the other locks.
 */
public final class Log {
    private static final System.Logger LOG = System.getLogger("redislock");
    /** Records that wait for a slow handler; more are dropped. */
    private static final int MOST = 1_000;

    private final ThreadPoolExecutor thread = new ThreadPoolExecutor(1, 1, 30, TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(MOST), task -> {
                Thread made = new Thread(task, "redis-lock-log");
                made.setDaemon(true);
                return made;
            }, new ThreadPoolExecutor.DiscardPolicy());

    public Log() {
        thread.allowCoreThreadTimeOut(true);
    }

    /** A text as of {@link System.Logger#log(System.Logger.Level, String, Object...)}. */
    public void log(System.Logger.Level level, String format, Object... values) {
        later(() -> LOG.log(level, format, values));
    }

    /** The failure of a part of the client, or of the program. */
    public void log(System.Logger.Level level, String text, Throwable failure) {
        later(() -> LOG.log(level, text, failure));
    }

    private void later(Runnable record) {
        try {
            thread.execute(record);
        } catch (OutOfMemoryError noThread) {
            // The record is dropped: what the client does besides counts more.
        }
    }

    /** Ends it after its last record, or after this time. */
    public void end(long millis) throws InterruptedException {
        thread.shutdown();
        thread.awaitTermination(millis, TimeUnit.MILLISECONDS);
    }
}
