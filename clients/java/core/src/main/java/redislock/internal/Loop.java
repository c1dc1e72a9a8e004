package redislock.internal;

import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.TreeSet;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The thread of a client: it runs the steps of waits, renewals and releases one after another, and their timers. No
 * step blocks, and no code of the program runs here.
 *
 * <p>A timer that is set and cancelled again does not wake the thread: it keeps the moment for which it sleeps, so an
 * acquisition without contention costs it nothing.
 */
public final class Loop implements Executor {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final Condition asleep = lock.newCondition();
    private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
    private final TreeSet<Timer> timers =
            new TreeSet<>(Comparator.<Timer>comparingLong(timer -> timer.at).thenComparingLong(timer -> timer.number));
    private final Thread thread;
    private final Log log;
    private long lastNumber;
    /** Until when the thread sleeps; zero while it runs. */
    private long sleepsUntil;
    private boolean isStarted;
    private boolean isOver;

    public Loop(String name, Log log) {
        this.log = log;
        thread = new Thread(this::run, name);
        thread.setDaemon(true);
    }

    /** Something to run at a moment. */
    public final class Timer {
        private final long at;
        private final Runnable task;
        private long number;

        private Timer(long at, Runnable task) {
            this.at = at;
            this.task = task;
        }

        /** Does nothing when it has run. */
        public void cancel() {
            lock.lock();
            try {
                timers.remove(this);
            } finally {
                lock.unlock();
            }
        }
    }

    /** Runs a step on the thread, after those that wait already. Nothing is run after the end. */
    @Override
    public void execute(Runnable task) {
        lock.lock();
        try {
            if (!isOver) {
                start();
                tasks.add(task);
                wake();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Runs a step after a span. */
    public Timer after(long span, Runnable task) {
        return at(Clock.plus(Clock.now(), span), task);
    }

    /** Runs a step at a moment; {@link Clock#NEVER}: not at all. */
    public Timer at(long moment, Runnable task) {
        Timer timer = new Timer(moment, task);
        if (moment == Clock.NEVER) {
            return timer;
        }
        lock.lock();
        try {
            if (!isOver) {
                start();
                timer.number = ++lastNumber;
                timers.add(timer);
                if (moment < sleepsUntil) {
                    wake();
                }
            }
        } finally {
            lock.unlock();
        }
        return timer;
    }

    /** Waits until no step is due, also after the clock was moved. Returns the moment of the next one. */
    public long settle() {
        lock.lock();
        try {
            wake();
            while (isStarted && !isOver && sleepsUntil == 0) {
                asleep.awaitUninterruptibly();
            }
            return timers.isEmpty() ? Clock.NEVER : timers.first().at;
        } finally {
            lock.unlock();
        }
    }

    /** Whether the calling thread is that of the loop. */
    public boolean isCurrent() {
        return Thread.currentThread() == thread;
    }

    /** Ends the thread after its present step; what waits is dropped. */
    public void end() {
        lock.lock();
        try {
            isOver = true;
            tasks.clear();
            timers.clear();
            wake();
            asleep.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Waits for the end of the thread, at most this long. */
    public void join(long millis) throws InterruptedException {
        if (!isCurrent()) {
            thread.join(millis);
        }
    }

    private void start() {
        if (!isStarted) {
            isStarted = true;
            thread.start();
        }
    }

    private void wake() {
        if (sleepsUntil != 0) {
            sleepsUntil = 0;
            changed.signal();
        }
    }

    private void run() {
        Runnable next;
        while ((next = next()) != null) {
            try {
                next.run();
            } catch (RuntimeException | Error defect) {
                log.log(System.Logger.Level.ERROR, "a step of the client has failed", defect);
            }
        }
    }

    /** The next step; null at the end. */
    private Runnable next() {
        lock.lock();
        try {
            while (!isOver) {
                Timer first = timers.isEmpty() ? null : timers.first();
                long now = Clock.now();
                // A timer that is due goes first: a loss is reported in time, however many messages wait.
                if (first != null && first.at <= now) {
                    timers.remove(first);
                    return first.task;
                }
                Runnable task = tasks.poll();
                if (task != null) {
                    return task;
                }
                sleep(first == null ? Clock.NEVER : first.at, now);
            }
            return null;
        } finally {
            lock.unlock();
        }
    }

    private void sleep(long until, long now) {
        sleepsUntil = until;
        asleep.signalAll();
        try {
            if (until == Clock.NEVER) {
                changed.await();
            } else {
                changed.await(until - now, TimeUnit.NANOSECONDS);
            }
        } catch (InterruptedException notOurs) {
            // Only the end of the loop ends its thread.
        } finally {
            sleepsUntil = 0;
        }
    }
}
