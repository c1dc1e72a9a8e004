package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
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
 * served. The acquisitions that wait for a name get it in their order. A fresh owner needs no reservation.
 *
 * <p>A release without a token of an exclusive lock names no mode: it would end a hold of the owner for READ or WRITE
 * too. So an exclusive request is not undone while the owner holds the lock in one of these modes, or asks for it; and
 * such an acquisition waits while an exclusive request is being undone.
 */
final class Reservation {
    /** The reservation of a fresh owner, which excludes nothing. */
    static final Reservation NONE = new Reservation(null, null);

    private static final ReentrantLock LOCK = new ReentrantLock();
    private static final List<Mode> OTHER_MODES = List.of(Mode.READ, Mode.WRITE);
    /** The names that are reserved, or waited for. */
    private static final Map<Name, Entry> NAMES = new HashMap<>();

    private final Name name;
    private final Engine engine;
    /** Changed with the lock. */
    private boolean isFree;

    /** Server, key, owner, and the kind of the hold. */
    record Name(String server, ByteBuffer key, ByteBuffer owner, String kind) {
        boolean isOf(Mode mode) {
            return kind.equals(mode.name());
        }

        Name in(Mode mode) {
            return new Name(server, key, owner, mode.name());
        }
    }

    /** A name that is reserved, or waited for. */
    private static final class Entry {
        /** Null: nothing has reserved it, but an exclusive request is being undone. */
        Reservation holder;
        /** The acquisitions that wait for it. */
        final Deque<Waiter> waiters = new ArrayDeque<>();
        /** Whether it is reserved only because a release is not answered, or a request may still be served. */
        boolean isSettling;

        boolean isUnused() {
            return holder == null && waiters.isEmpty();
        }
    }

    /** An acquisition that waits for a name. */
    static final class Waiter {
        private final Name name;
        private final Engine engine;
        private final Consumer<Reservation> then;

        /** {@code then} runs on the thread that frees the name, or in that of {@link #start}, and must not block. */
        Waiter(Name name, Engine engine, Consumer<Reservation> then) {
            this.name = name;
            this.engine = engine;
            this.then = then;
        }

        /** Enters the queue. An earlier call is before a later one, whatever the threads. */
        void start() {
            Reservation reserved;
            LOCK.lock();
            try {
                if (isTaken(name)) {
                    NAMES.computeIfAbsent(name, unused -> new Entry()).waiters.add(this);
                    return;
                }
                reserved = put(name, engine);
            } finally {
                LOCK.unlock();
            }
            then.accept(reserved);
        }

        /** Leaves the queue. False when the reservation has been handed over already. */
        boolean cancel() {
            LOCK.lock();
            try {
                Entry entry = NAMES.get(name);
                boolean isWaiting = entry != null && entry.waiters.remove(this);
                dropUnused(name);
                return isWaiting;
            } finally {
                LOCK.unlock();
            }
        }

        /** Whether nothing is held or asked for under the name: it only waits for answers of the server. */
        boolean isForAnswer() {
            LOCK.lock();
            try {
                Entry entry = NAMES.get(name);
                return entry == null || entry.holder == null || entry.isSettling;
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

    /** Reserves this name for a client if it is free and nothing waits for it; otherwise null. */
    static Reservation tryReserve(Name name, Engine engine) {
        LOCK.lock();
        try {
            return isTaken(name) ? null : put(name, engine);
        } finally {
            LOCK.unlock();
        }
    }

    /** Reserves this name to undo a late request, if that can end nothing else of the owner; otherwise null. */
    static Reservation tryReserveToUndo(Name name, Engine engine) {
        LOCK.lock();
        try {
            if (isTaken(name) || hasOtherMode(name)) {
                return null;
            }
            Reservation reservation = put(name, engine);
            NAMES.get(name).isSettling = true;
            return reservation;
        } finally {
            LOCK.unlock();
        }
    }

    private static boolean isTaken(Name name) {
        return NAMES.containsKey(name) || isUndone(name);
    }

    /** Whether an exclusive request of the same owner is being undone, which would end a hold under this name. */
    private static boolean isUndone(Name name) {
        if (!name.isOf(Mode.READ) && !name.isOf(Mode.WRITE)) {
            return false;
        }
        Entry exclusive = NAMES.get(name.in(Mode.EXCLUSIVE));
        return exclusive != null && exclusive.isSettling;
    }

    private static boolean hasOtherMode(Name name) {
        return name.isOf(Mode.EXCLUSIVE) && OTHER_MODES.stream().anyMatch(mode -> {
            Entry other = NAMES.get(name.in(mode));
            return other != null && other.holder != null;
        });
    }

    private static Reservation put(Name name, Engine engine) {
        Reservation reservation = new Reservation(name, engine);
        NAMES.computeIfAbsent(name, unused -> new Entry()).holder = reservation;
        return reservation;
    }

    private static void dropUnused(Name name) {
        NAMES.computeIfPresent(name, (same, entry) -> entry.isUnused() ? null : entry);
    }

    /**
     * Frees the names of a client that has ended without all the answers, {@code late} nanoseconds from now: until then
     * one of its requests may still be served. Its timers run no more.
     */
    static void clientEnded(Engine ended, long late) {
        List<Reservation> left;
        LOCK.lock();
        try {
            NAMES.values().forEach(entry -> entry.waiters.removeIf(waiter -> waiter.engine == ended));
            NAMES.values().removeIf(Entry::isUnused);
            left = NAMES.values().stream().map(entry -> entry.holder)
                    .filter(held -> held != null && held.engine == ended).toList();
            left.forEach(held -> NAMES.get(held.name).isSettling = true);
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
                NAMES.get(name).isSettling = true;
            }
        } finally {
            LOCK.unlock();
        }
    }

    /** Whether a release without a token would end a hold or a wait of the owner in another mode. */
    boolean hasOtherMode() {
        LOCK.lock();
        try {
            return name != null && hasOtherMode(name);
        } finally {
            LOCK.unlock();
        }
    }

    /** Frees the name, or hands it to the next acquisition that waits for it. A second call does nothing. */
    void free() {
        if (name == null) {
            return;
        }
        List<Runnable> handovers = new ArrayList<>();
        LOCK.lock();
        try {
            if (isFree) {
                return;
            }
            isFree = true;
            Entry entry = NAMES.get(name);
            entry.holder = null;
            entry.isSettling = false;
            handOver(name, handovers);
            if (name.isOf(Mode.EXCLUSIVE)) {
                OTHER_MODES.forEach(mode -> handOver(name.in(mode), handovers));
            }
            dropUnused(name);
        } finally {
            LOCK.unlock();
        }
        handovers.forEach(Runnable::run);
    }

    /** Reserves the name for the first acquisition that waits for it, if it is free. */
    private static void handOver(Name name, List<Runnable> handovers) {
        Entry entry = NAMES.get(name);
        if (entry == null || entry.holder != null || entry.waiters.isEmpty() || isUndone(name)) {
            return;
        }
        Waiter next = entry.waiters.remove();
        Reservation reservation = put(name, next.engine);
        handovers.add(() -> next.then.accept(reservation));
    }
}
