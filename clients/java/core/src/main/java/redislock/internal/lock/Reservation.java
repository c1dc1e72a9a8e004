package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * The reservation of an owner name: one acquisition for each key and owner at a time in this process.
 *
 * <p>To the server an owner is one flow of control; it cannot distinguish two tasks that use one name. A withdrawal by
 * the first would release what the second has just been granted, and both would believe that they hold one grant. So an
 * acquisition under a fixed name reserves that name, until its guard is released and none of its requests can still be
 * served. A fresh owner needs no reservation.
 */
final class Reservation {
    /** The reservation of a fresh owner, which excludes nothing. */
    static final Reservation NONE = new Reservation(null);

    private static final ReentrantLock LOCK = new ReentrantLock();
    /** The reserved names, with the acquisitions that wait for them. */
    private static final Map<Name, Deque<Waiter>> RESERVED = new HashMap<>();

    private final Name name;
    private final AtomicBoolean isFree = new AtomicBoolean();

    /** Server, key, owner, and the kind of the hold. */
    record Name(String server, ByteBuffer key, ByteBuffer owner, String kind) {}

    /** An acquisition that waits for a name. */
    static final class Waiter {
        private final Name name;
        private final Consumer<Reservation> then;

        private Waiter(Name name, Consumer<Reservation> then) {
            this.name = name;
            this.then = then;
        }

        /** Leaves the queue. False when the reservation has been handed over already. */
        boolean cancel() {
            LOCK.lock();
            try {
                Deque<Waiter> waiters = RESERVED.get(name);
                return waiters != null && waiters.remove(this);
            } finally {
                LOCK.unlock();
            }
        }
    }

    private Reservation(Name name) {
        this.name = name;
    }

    static Name nameOf(String server, Claim claim) {
        return new Name(server, ByteBuffer.wrap(claim.key()), ByteBuffer.wrap(claim.owner()), claim.kind().word());
    }

    /** Reserves this name if it is free; otherwise null. */
    static Reservation tryReserve(Name name) {
        LOCK.lock();
        try {
            return RESERVED.putIfAbsent(name, new ArrayDeque<>()) == null ? new Reservation(name) : null;
        } finally {
            LOCK.unlock();
        }
    }

    /**
     * Waits for this name. {@code then} runs on the thread that frees it, or in the calling one, and must not block.
     */
    static Waiter reserve(Name name, Consumer<Reservation> then) {
        Waiter waiter = new Waiter(name, then);
        LOCK.lock();
        try {
            Deque<Waiter> waiters = RESERVED.get(name);
            if (waiters != null) {
                waiters.add(waiter);
                return waiter;
            }
            RESERVED.put(name, new ArrayDeque<>());
        } finally {
            LOCK.unlock();
        }
        then.accept(new Reservation(name));
        return waiter;
    }

    /** Whether another acquisition may use the owner's name. */
    boolean isNamed() {
        return name != null;
    }

    Name name() {
        return name;
    }

    /** Frees the name, or hands it to the next acquisition that waits for it. A second call does nothing. */
    void free() {
        if (name == null || !isFree.compareAndSet(false, true)) {
            return;
        }
        Waiter next;
        LOCK.lock();
        try {
            Deque<Waiter> waiters = RESERVED.get(name);
            next = waiters.poll();
            if (next == null) {
                RESERVED.remove(name);
            }
        } finally {
            LOCK.unlock();
        }
        if (next != null) {
            next.then.accept(new Reservation(name));
        }
    }
}
