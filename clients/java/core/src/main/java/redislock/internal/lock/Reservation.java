package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import redislock.Mode;

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
    static final Reservation NONE = new Reservation(null, null);

    private static final ReentrantLock LOCK = new ReentrantLock();
    /** The reserved names. */
    private static final Map<Name, Entry> RESERVED = new HashMap<>();

    private final Name name;
    private final Engine engine;
    /** Changed with the lock. */
    private boolean isFree;

    /** Server, key, owner, and the kind of the hold. */
    record Name(String server, ByteBuffer key, ByteBuffer owner, String kind) {}

    /** A reserved name. */
    private static final class Entry {
        Reservation holder;
        /** The acquisitions that wait for it. */
        final Deque<Waiter> waiters = new ArrayDeque<>();
        /** Whether it is reserved only because a release is not answered, or a request may still be served. */
        boolean isSettling;
    }

    /** An acquisition that waits for a name. */
    static final class Waiter {
        private final Name name;
        private final Engine engine;
        private final Consumer<Reservation> then;

        private Waiter(Name name, Engine engine, Consumer<Reservation> then) {
            this.name = name;
            this.engine = engine;
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

    private Reservation(Name name, Engine engine) {
        this.name = name;
        this.engine = engine;
    }

    static Name nameOf(Claim claim, Engine engine) {
        return new Name(engine.network().name(), ByteBuffer.wrap(claim.key()), ByteBuffer.wrap(claim.owner()),
                claim.kind().word());
    }

    /** Reserves this name for a client if it is free; otherwise null. */
    static Reservation tryReserve(Name name, Engine engine) {
        LOCK.lock();
        try {
            return RESERVED.containsKey(name) ? null : put(name, engine);
        } finally {
            LOCK.unlock();
        }
    }

    /** Whether the owner has a hold of this mode at the same key, or asks for one. */
    static boolean isReserved(Name other, Mode mode) {
        LOCK.lock();
        try {
            return RESERVED.containsKey(new Name(other.server(), other.key(), other.owner(), mode.name()));
        } finally {
            LOCK.unlock();
        }
    }

    private static Reservation put(Name name, Engine engine) {
        Reservation reservation = new Reservation(name, engine);
        Entry entry = new Entry();
        entry.holder = reservation;
        RESERVED.put(name, entry);
        return reservation;
    }

    /**
     * Waits for this name. {@code then} runs on the thread that frees it, or in the calling one, and must not block.
     */
    static Waiter reserve(Name name, Engine engine, Consumer<Reservation> then) {
        Waiter waiter = new Waiter(name, engine, then);
        Reservation reserved;
        LOCK.lock();
        try {
            Entry entry = RESERVED.get(name);
            if (entry != null) {
                entry.waiters.add(waiter);
                return waiter;
            }
            reserved = put(name, engine);
        } finally {
            LOCK.unlock();
        }
        then.accept(reserved);
        return waiter;
    }

    /**
     * Frees the names of a client that has ended without all the answers, {@code late} nanoseconds from now: until then
     * one of its requests may still be served. Its timers run no more.
     */
    static void clientEnded(Engine ended, long late) {
        List<Reservation> left;
        LOCK.lock();
        try {
            RESERVED.values().forEach(entry -> entry.waiters.removeIf(waiter -> waiter.engine == ended));
            left = RESERVED.values().stream().map(entry -> entry.holder).filter(held -> held.engine == ended).toList();
            left.forEach(held -> RESERVED.get(held.name).isSettling = true);
        } finally {
            LOCK.unlock();
        }
        if (!left.isEmpty()) {
            Executor later = CompletableFuture.delayedExecutor(late, TimeUnit.NANOSECONDS);
            later.execute(() -> left.forEach(Reservation::free));
        }
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
        Reservation handedOver = null;
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
            } else {
                handedOver = new Reservation(name, next.engine);
                entry.holder = handedOver;
            }
        } finally {
            LOCK.unlock();
        }
        if (next != null) {
            next.then.accept(handedOver);
        }
    }
}
