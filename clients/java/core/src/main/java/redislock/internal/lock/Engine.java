package redislock.internal.lock;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import redislock.LockClosedException;
import redislock.LockObserver;
import redislock.LostReason;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;
import redislock.internal.net.Requests;

/** What the locks of a client share: its network, its background work, and what has to be ended when it is closed. */
public final class Engine {
    /** The pause after which code that no executor has taken is offered again. */
    private static final long REFUSED = 100 * Clock.MILLI;
    /** Upper bound of the keys of which it is known that acquisitions wait. */
    private static final int MOST_CONTENDED = 1_000;

    private final Network network;
    /** Runs the callbacks of losses. The stages of futures have another executor, so that no loss waits for them. */
    private final Executor callbacks;
    private final Executor completions;
    /** The program's own executor, which gets both from them, because its {@code execute} may block; or null. */
    private final Executor own;
    /** Null: no observer. */
    private final LockObserver observer;
    private final Background background = new Background();
    /** For owners with the names of threads, and for their keys: completes when their releases are answered. */
    private final Map<ByteBuffer, CompletableFuture<Void>> unsettled = new ConcurrentHashMap<>();
    /** The keys at which the last acquisition has waited. */
    private final Set<ByteBuffer> contended = ConcurrentHashMap.newKeySet();
    /** How many acquisitions are to send their first request on the client's thread. */
    private final AtomicInteger beginning = new AtomicInteger();
    private final AtomicLong lastNumber = new AtomicLong();
    private final AtomicLong lastEvent = new AtomicLong();
    private final Sessions sessions = new Sessions();
    private final Replicas replicas;
    /** The holds and acquisitions of this client. */
    private final Set<Hold> holds = ConcurrentHashMap.newKeySet();
    private final Set<Pending> pending = ConcurrentHashMap.newKeySet();
    /** The first part of the owners of threads. */
    private final String id = UUID.randomUUID().toString();
    /** Futures for which threads may wait at the end. */
    private final Set<CompletableFuture<?>> answers = ConcurrentHashMap.newKeySet();
    /** Completes after the end of the client, when nothing waits any more. */
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private volatile boolean isClosed;
    private volatile boolean isFinished;

    /** Something that waits for an answer, and is ended when the client is closed. */
    public interface Pending {
        void end(RuntimeException why);
    }

    /** {@code own} and {@code observer} may be null. */
    public Engine(Network network, Executor callbacks, Executor completions, Executor own, LockObserver observer) {
        this.network = network;
        this.replicas = new Replicas(network);
        this.callbacks = callbacks;
        this.completions = completions;
        this.own = own;
        this.observer = observer;
        network.whenLeft(this::endPending);
    }

    public Network network() {
        return network;
    }

    Loop loop() {
        return network.loop();
    }

    Counts counts() {
        return network.counts();
    }

    public Background background() {
        return background;
    }

    /** Completes when all releases of this owner are answered, with a key those at that key; null: they are. */
    CompletableFuture<Void> unsettled(byte[] owner, byte[] key) {
        return unsettled.get(name(owner, key));
    }

    /** A release of this owner at this key has no reply until then. */
    void unsettled(byte[] owner, byte[] key, CompletableFuture<Void> until) {
        for (ByteBuffer name : List.of(name(owner, null), name(owner, key))) {
            CompletableFuture<Void> all = unsettled.merge(name, until, CompletableFuture::allOf);
            all.whenComplete((unused, error) -> unsettled.remove(name, all));
        }
    }

    private static ByteBuffer name(byte[] owner, byte[] key) {
        byte[] name = Arrays.copyOf(owner, owner.length + (key == null ? 0 : key.length));
        if (key != null) {
            System.arraycopy(key, 0, name, owner.length, key.length);
        }
        return ByteBuffer.wrap(name);
    }

    /**
     * Runs one of these: the first request of an acquisition. {@code inQueue} waits, on the client's thread, if the
     * last acquisition at this key has waited and this one may wait. Others follow it there, so that the requests are
     * sent in the order of the calls.
     */
    void begin(byte[] key, boolean mayWait, Runnable inQueue, Runnable atOnce) {
        boolean isContended = mayWait && !contended.isEmpty() && contended.contains(ByteBuffer.wrap(key));
        if (loop().isCurrent() || !isContended && beginning.get() == 0) {
            // Queued by the client's thread, it could be sent after it was given up.
            (isContended ? inQueue : atOnce).run();
            return;
        }
        beginning.incrementAndGet();
        loop().execute(() -> {
            try {
                (isContended ? inQueue : atOnce).run();
            } finally {
                beginning.decrementAndGet();
            }
        });
    }

    /** An acquisition at this key was granted. */
    void granted(byte[] key, boolean hasWaited) {
        if (hasWaited) {
            if (contended.size() >= MOST_CONTENDED) {
                contended.clear();
            }
            contended.add(ByteBuffer.wrap(key));
        } else if (!contended.isEmpty()) {
            contended.remove(ByteBuffer.wrap(key));
        }
    }

    /** The number of the next acquisition of any owner with the name of a thread. */
    long nextNumber() {
        return lastNumber.incrementAndGet();
    }

    /** The owner of an acquisition that belongs to no thread. */
    byte[] freshOwner() {
        return (id + "-" + lastNumber.incrementAndGet()).getBytes(StandardCharsets.US_ASCII);
    }

    Sessions sessions() {
        return sessions;
    }

    Replicas replicas() {
        return replicas;
    }

    public String id() {
        return id;
    }

    /**
     * Fails when the client is closed, or the program's client below it.
     *
     * @throws LockClosedException then
     */
    public void checkOpen() {
        if (isClosed || network.isLeft()) {
            throw closed();
        }
    }

    private LockClosedException closed() {
        return new LockClosedException(network.name() + ": the client is closed");
    }

    /** Reports a loss to the program: never on a thread of the transport, nor on that of the client. */
    void callBack(Runnable code) {
        run(callbacks, () -> guarded("the callback of a loss has failed", code));
    }

    /** Completes a future of the program: never on a thread of the transport, nor on that of the client. */
    public void complete(Runnable code) {
        run(completions, code);
    }

    /** The same with code of the program, whose failure is logged under this text. */
    public void complete(String failure, Runnable code) {
        complete(() -> guarded(failure, code));
    }

    /** The same future for the program, whose stages run on the client's executor. */
    public <T> CompletableFuture<T> forProgram(CompletableFuture<T> inner) {
        CompletableFuture<T> outer = new CompletableFuture<>();
        inner.whenComplete((value, error) -> complete(() -> {
            if (error != null) {
                outer.completeExceptionally(error);
            } else {
                outer.complete(value);
            }
        }));
        return outer;
    }

    /** Calls the observer, if there is one. */
    void observe(Consumer<LockObserver> call) {
        if (observer != null) {
            complete("the observer has failed", () -> call.accept(observer));
        }
    }

    /** A number for the events of an acquisition, if there is an observer. */
    long nextEvent() {
        return observer == null ? 0 : lastEvent.incrementAndGet();
    }

    /** Runs code of the program, and logs its failure. */
    private void guarded(String failure, Runnable code) {
        try {
            code.run();
        } catch (RuntimeException | Error defect) {
            network.log().log(System.Logger.Level.WARNING, failure, defect);
        }
    }

    /** A future must be completed: otherwise a thread waits for ever, or a hold is never released. */
    private void run(Executor executor, Runnable code) {
        AtomicBoolean isStarted = new AtomicBoolean();
        Runnable once = () -> {
            if (isStarted.compareAndSet(false, true)) {
                code.run();
            }
        };
        Runnable offer = own == null ? once : () -> {
            if (!isTaken(own, once)) {
                once.run();
            }
        };
        if (!isTaken(executor, offer) && !isTaken(ForkJoinPool.commonPool(), offer)) {
            loop().after(REFUSED, () -> run(executor, once));
        }
    }

    /** Whether the executor takes the code: it may be closed or full, or get no thread. */
    private boolean isTaken(Executor executor, Runnable code) {
        try {
            executor.execute(code);
            return true;
        } catch (RejectedExecutionException | OutOfMemoryError refused) {
            return false;
        } catch (RuntimeException defect) {
            network.log().log(System.Logger.Level.WARNING, "the executor has failed", defect);
            return false;
        }
    }

    /** The same future, which the end of the client completes if no answer does: a thread may wait for it. */
    public <T> CompletableFuture<T> answer(CompletableFuture<T> future) {
        if (!future.isDone()) {
            answers.add(future);
            future.whenComplete((value, error) -> answers.remove(future));
            if (isFinished) {
                future.completeExceptionally(closed());
            }
        }
        return future;
    }

    /** The reply to a request that may be served twice, for which the calling thread waits. */
    public Object call(Cmd command) {
        checkOpen();
        Blocking.check();
        return Blocking.get(answer(Requests.repeatable(network, command)));
    }

    /** The same for a request that must be served at most once, see {@link Requests#atMostOnce}. */
    public Object callOnce(Cmd probe, Cmd command) {
        checkOpen();
        Blocking.check();
        return Blocking.get(answer(Requests.atMostOnce(network, probe, command)));
    }

    void add(Hold hold) {
        holds.add(hold);
        if (isClosed) {
            hold.releaseInBackground();
        }
    }

    /** Reports the holds of this key as lost, for tests. */
    public void lose(String name) {
        holds.stream().filter(hold -> hold.claim().name().equals(name))
                .forEach(hold -> loop().execute(() -> hold.lose(LostReason.TAKEN, "", "")));
    }

    void remove(Hold hold) {
        holds.remove(hold);
    }

    /** Registers what is to be ended with the client. */
    public void add(Pending waiting) {
        pending.add(waiting);
        if (isClosed || network.isLeft()) {
            waiting.end(closed());
        }
    }

    /** The waiting has ended; what it was granted is {@linkplain #add(Hold) registered} before. */
    public void remove(Pending waiting) {
        pending.remove(waiting);
        if (isClosed && pending.isEmpty()) {
            ended.complete(null);
        }
    }

    /** Ends all waits and releases all holds. Completes when all of that is answered. */
    public CompletableFuture<Void> close() {
        isClosed = true;
        endPending();
        holds.forEach(Hold::releaseInBackground);
        if (pending.isEmpty()) {
            ended.complete(null);
        }
        // What is granted at this moment is no hold yet, and released when it is one.
        return ended.thenCompose(unused -> background.settled());
    }

    private void endPending() {
        pending.forEach(waiting -> waiting.end(closed()));
    }

    /** Ends what still waits for an answer. */
    public void finish() {
        isFinished = true;
        answers.forEach(answer -> answer.completeExceptionally(closed()));
    }
}
