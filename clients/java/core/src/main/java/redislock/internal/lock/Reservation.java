package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
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
    /** The reserved names. */
    private static final Map<Name, Entry> RESERVED = new HashMap<>();

    private final Name name;
    /** Changed with the lock. */
    private boolean isFree;

    /** Server, key, owner, and the kind of the hold. */
    record Name(String server, ByteBuffer key, ByteBuffer owner, String kind) {}

    /** A reserved name. */
    private static final class Entry {
        /** The acquisitions that wait for it. */
        final Deque<Waiter> waiters = new ArrayDeque<>();
        /** Whether it is reserved only because a release is not answered, or a request may still be served. */
        boolean isSettling;
    }

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
                Entry entry = RESERVED.get(name);
                return entry != null && entry.waiters.remove(this);
            } finally {
                LOCK.unlock();
            }
        }

        /** Whether nothing is held or asked for under the name: it only waits for answers of the server. */
        boolean isForAnswer() {
            LOCK.lock();
            try {
                Entry entry = RESERVED.get(name);
                return entry == null || entry.isSettling;
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
            return RESERVED.putIfAbsent(name, new Entry()) == null ? new Reservation(name) : null;
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
            Entry entry = RESERVED.get(name);
            if (entry != null) {
                entry.waiters.add(waiter);
                return waiter;
            }
            RESERVED.put(name, new Entry());
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

    /** Nothing is held or asked for under the name any more: it is kept until the server has answered. */
    void settling() {
        if (name == null) {
            return;
        }
        LOCK.lock();
        try {
            if (!isFree) {
                RESERVED.get(name).isSettling = true;
            }
        } finally {
            LOCK.unlock();
        }
    }

    /** Frees the name, or hands it to the next acquisition that waits for it. A second call does nothing. */
    void free() {
        if (name == null) {
            return;
        }
        Waiter next;
        LOCK.lock();
        try {
            if (isFree) {
                return;
            }
            isFree = true;
            Entry entry = RESERVED.get(name);
            entry.isSettling = false;
            next = entry.waiters.poll();
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
