package redislock.spring;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** A fair re-entrant lock in this process. A thread that has ended does not keep it, unlike a {@link ReentrantLock}. */
final class LocalLock {
    /** How often a thread that waits looks whether the owner has ended. */
    private static final long LOOK = TimeUnit.MILLISECONDS.toNanos(500);

    private final ReentrantLock mutex = new ReentrantLock();
    private final Deque<Condition> queue = new ArrayDeque<>();
    private @Nullable Thread owner;
    private int holds;

    /** Waits without a limit; an interruption does not end the wait. */
    void lock() {
        boolean isInterrupted = false;
        while (true) {
            try {
                await(Long.MAX_VALUE);
                break;
            } catch (InterruptedException later) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    void lockInterruptibly() throws InterruptedException {
        await(Long.MAX_VALUE);
    }

    boolean tryLock() {
        mutex.lock();
        try {
            return enter(true);
        } finally {
            mutex.unlock();
        }
    }

    boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return await(unit.toNanos(time));
    }

    private boolean await(long nanos) throws InterruptedException {
        long end = System.nanoTime() + Math.min(nanos, Long.MAX_VALUE / 2);
        mutex.lockInterruptibly();
        Condition mine = mutex.newCondition();
        try {
            queue.add(mine);
            while (!enter(queue.peek() == mine)) {
                long left = end - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                mine.awaitNanos(Math.min(left, LOOK));
            }
            return true;
        } finally {
            queue.remove(mine);
            wakeFirst();
            mutex.unlock();
        }
    }

    /** Enters it again, or for the first time if it {@code isNext} and nothing that lives holds it. */
    private boolean enter(boolean isNext) {
        if (owner == Thread.currentThread()) {
            holds++;
            return true;
        }
        if (!isNext || isLocked() && owner.isAlive()) {
            return false;
        }
        owner = Thread.currentThread();
        holds = 1;
        return true;
    }

    private void wakeFirst() {
        if (owner == null && !queue.isEmpty()) {
            queue.peek().signal();
        }
    }

    void unlock() {
        mutex.lock();
        try {
            if (owner != Thread.currentThread()) {
                throw new IllegalMonitorStateException();
            }
            if (--holds == 0) {
                owner = null;
                wakeFirst();
            }
        } finally {
            mutex.unlock();
        }
    }

    boolean isLocked() {
        mutex.lock();
        try {
            return owner != null;
        } finally {
            mutex.unlock();
        }
    }

    boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    int getHoldCount() {
        mutex.lock();
        try {
            return owner == Thread.currentThread() ? holds : 0;
        } finally {
            mutex.unlock();
        }
    }
}
