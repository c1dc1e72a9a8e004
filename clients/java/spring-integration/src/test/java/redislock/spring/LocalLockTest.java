package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import redislock.testing.Waiting;

/** The local lock of a registry, without a server. */
class LocalLockTest {
    private final LocalLock lock = new LocalLock();

    @Test
    void threads_enter_in_order_also_after_they_have_looked_at_the_owner() throws Exception {
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Thread> waiters = new ArrayList<>();
        lock.lock();
        for (int i = 0; i < 5; i++) {
            int place = i;
            waiters.add(Registries.inThread(() -> {
                lock.lock();
                order.add(place);
                lock.unlock();
            }));
            Waiting.waitFor("a thread that waits",
                    () -> waiters.get(place).getState() == Thread.State.TIMED_WAITING);
            // sleep: they look every 500 ms, each from its own begin
            Thread.sleep(150);
        }
        lock.unlock();
        for (Thread waiter : waiters) {
            waiter.join(Waiting.PATIENCE.toMillis());
        }
        assertEquals(List.of(0, 1, 2, 3, 4), order);
    }

    @Test
    void all_that_wait_for_a_thread_that_ends_enter_in_order() throws Exception {
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Thread> waiters = new CopyOnWriteArrayList<>();
        Thread owner = Registries.inThread(() -> {
            lock.lock();
            Waiting.waitFor("three that wait", () -> waiters.size() == 3);
        });
        Waiting.waitFor("the owner", lock::isLocked);
        for (int i = 0; i < 3; i++) {
            int place = i;
            Thread waiter = Registries.inThread(() -> {
                lock.lock();
                lock.lock();
                order.add(place);
                lock.unlock();
                lock.unlock();
            });
            Waiting.waitFor("a thread that waits", () -> waiter.getState() == Thread.State.TIMED_WAITING);
            waiters.add(waiter);
        }
        owner.join(Waiting.PATIENCE.toMillis());
        for (Thread waiter : waiters) {
            waiter.join(Waiting.PATIENCE.toMillis());
        }
        assertEquals(List.of(0, 1, 2), order);
        assertTrue(lock.tryLock());
    }
}
