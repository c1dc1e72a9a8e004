package redislock.internal.lock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import redislock.DeadlockException;
import redislock.LockClosedException;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.LockObserver;
import redislock.NotReplicatedException;
import redislock.internal.Clock;
import redislock.internal.Counts;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.net.Errors;
import redislock.internal.net.Link;
import redislock.internal.net.Reply;

/**
 * An acquisition: of one lock, or of several locks of one server in one request. It asks, waits, and becomes a hold; if
 * its result is not wanted any more it is given up, after which no request of it grants anything.
 *
 * <p>The first request is sent by the calling thread, and a grant that answers it needs no other thread. Everything
 * else happens on the client's thread.
 */
public final class Acquisition implements Engine.Pending {
    private final Engine engine;
    private final List<Terms> terms;
    private final long end;
    private final long startedAt = Clock.now();
    /** Of the events; zero: there is no observer. */
    private final long id;
    private final CompletableFuture<List<Hold>> result = new CompletableFuture<>();
    private final CompletableFuture<Void> undone = new CompletableFuture<>();
    private final AtomicBoolean isOver = new AtomicBoolean();
    /** Completes when the calling thread has sent the first request, or will not: before that nothing is given up. */
    private final CompletableFuture<Void> begun = new CompletableFuture<>();
    /** The present attempt; a new one follows when a grant came too late, or the connection of a session has ended. */
    private volatile List<Claim> claims;
    private volatile Wait wait;
    /** The connection of a session, otherwise that of the client. */
    private Link link;
    /** Whether the owner holds the lock, and the lease of its session is still to be read, or its replicas asked. */
    private volatile boolean isChecking;
    private Loop.Timer unsettledTimer;
    /** Whether it was refused as a deadlock, and begun anew. */
    private boolean isRefused;

    private Acquisition(List<Terms> terms, long end) {
        this.terms = new ArrayList<>(terms);
        this.engine = terms.get(0).engine();
        this.end = end;
        this.id = engine.nextEvent();
    }

    /** Acquires the locks of these terms, which agree in everything but key and margin, until {@code end}. */
    public static Acquisition start(List<Terms> terms, long end) {
        Terms first = terms.get(0);
        first.engine().checkOpen();
        Acquisition acquisition = new Acquisition(terms, end);
        acquisition.observe((observer, lock) -> observer.asked(lock));
        first.engine().add(acquisition);
        List<CompletableFuture<Void>> unsettled = new ArrayList<>();
        for (Terms each : terms) {
            CompletableFuture<Void> release =
                    each.isThread() ? each.engine().unsettled(each.owner(), each.key()) : null;
            if (release != null) {
                unsettled.add(release);
            }
        }
        try {
            if (unsettled.isEmpty()) {
                acquisition.begin();
            } else {
                acquisition.await(CompletableFuture.allOf(unsettled.toArray(CompletableFuture<?>[]::new)));
            }
        } finally {
            acquisition.begun.complete(null);
        }
        return acquisition;
    }

    /** A release of the owner has no reply yet: served after the next acquisition, it would end that. */
    private void await(CompletableFuture<Void> unsettled) {
        // A wait that the server has answered goes on.
        long until = end == Clock.NEVER && wait != null ? end
                : Math.max(end == Clock.NEVER ? 0 : end, Clock.now() + engine.network().patience());
        unsettledTimer = engine.loop().at(until, () -> over(new LockConnectionException(engine.network().server(),
                "no answer in time to an earlier request of the same owner", null), false));
        unsettled.whenComplete((unused, failure) -> engine.loop().execute(() -> {
            unsettledTimer.cancel();
            begin();
        }));
    }

    private void begin() {
        if (isOver.get()) {
            return;
        }
        Terms first = terms.get(0);
        claims = Terms.claims(terms);
        link = first.isSession() ? engine.network().linkOf(first.key()) : engine.network().link();
        Wait.Request request = new Wait.Request(first.key(),
                Claim.acquire(claims, first.isSession() ? 0 : first.lease()), certain(), terms.size() == 1,
                first.mustExist(), first.options().queue().orElse(null));
        wait = new Wait(engine.network(), link, request, end, new Wait.Listener() {
            @Override
            public void ended(Wait.Grant grant, LockException error) {
                CompletableFuture<Void> unsettled = error instanceof DeadlockException && first.isThread() && !isRefused
                        ? engine.unsettled(first.owner(), null) : null;
                if (unsettled != null) {
                    // Perhaps because of what the thread has at other keys without wanting it: see DESIGN-CLIENTS.md.
                    isRefused = true;
                    wait.stop();
                    await(unsettled);
                } else if (grant == null) {
                    over(error, false);
                } else if (grant.tokens().length != terms.size()) {
                    over(Reply.foreign(engine.network().server()), false);
                } else if (first.isSession()) {
                    isChecking = true;
                    engine.loop().execute(() -> bind(grant.tokens()[0]));
                } else if (first.options().replicas().isPresent()) {
                    isChecking = true;
                    stopAfterWait();
                    engine.loop().execute(() -> check(grant.tokens()));
                } else {
                    granted(grant);
                }
            }

            @Override
            public void restart() {
                Acquisition.this.restart();
            }
        });
        Wait begun = wait;
        engine.begin(first.key(), Clock.left(end) > 0, begun::firstInQueue, begun::first);
    }

    /** Gives the present attempt up and begins anew: what it was granted may be over in part. */
    private void restart() {
        if (isOver.get()) {
            return;
        }
        CompletableFuture<Void> given = new CompletableFuture<>();
        boolean mayBeServed = abandon(() -> given.complete(null));
        if (mayBeServed && terms.get(0).owner() != null) {
            // The name of a thread or of the program is used again.
            await(given);
        } else {
            engine.loop().after(Pause.FIRST, this::begin);
        }
    }

    /** Ends the present attempt, and gives it up if a request of it may still be served: then it returns true. */
    private boolean abandon(Runnable then) {
        boolean mayBeServed = wait != null && (wait.stop() || isChecking);
        Link former = link;
        Runnable done = () -> {
            closeOwn(former);
            then.run();
        };
        if (mayBeServed) {
            giveUp(done);
        } else {
            done.run();
        }
        isChecking = false;
        return mayBeServed;
    }

    private void closeOwn(Link of) {
        if (of != null && of != engine.network().link()) {
            of.close();
        }
    }

    /** Reads the lease that the server has set for a session. */
    private void bind(long token) {
        if (isOver.get()) {
            return;
        }
        Claim claim = claims.get(0);
        long patience = engine.network().patience() / 2;
        Moment sent = Moment.now();
        link.callOnLoop(claim.renew(0, token), patience, renewed -> {
            if (renewed.error() != null || !Long.valueOf(1).equals(renewed.value())) {
                // Broken meanwhile, or the connection has ended.
                notBound(renewed.error());
                return;
            }
            engine.sessions().leaseLeft(link, claim, sent, patience, (left, at, error) -> engine.loop().execute(() -> {
                if (left == null) {
                    notBound(error);
                } else if (isOver.compareAndSet(false, true)) {
                    wait.stop();
                    terms.set(0, terms.get(0).leased(left));
                    hold(new Wait.Grant(new long[] {token}, at), link);
                }
            }));
        });
    }

    /** Asks the replicas for the grant, which sets the lease anew. */
    private void check(long[] tokens) {
        if (isOver.get()) {
            return;
        }
        engine.replicas().check(terms, claims, tokens, (sent, isHeld, error) -> {
            if (isOver.get()) {
                return;
            }
            if (error != null || sent.elapsed() >= certain()) {
                over(error != null ? error : Errors.noAnswer(engine.network().server()), false);
            } else if (!isHeld) {
                restart();
            } else if (isOver.compareAndSet(false, true)) {
                hold(new Wait.Grant(tokens, sent), null);
            }
        });
    }

    /** How long after its request a grant of all these locks is usable. */
    private long certain() {
        long certain = Clock.NEVER;
        for (Terms each : terms) {
            certain = Math.min(certain, each.isSession() ? Clock.NEVER : each.reportedAfter(each.lease()));
        }
        return certain;
    }

    private void notBound(LockException error) {
        if (isOver.get()) {
            return;
        }
        if (error != null && !error.isPassing() || Clock.left(end) == 0) {
            over(error != null ? error : Reply.foreign(engine.network().server()), false);
        } else {
            restart();
        }
    }

    private void granted(Wait.Grant grant) {
        if (!isOver.compareAndSet(false, true)) {
            // Given up meanwhile: its request counts as one without a reply.
            return;
        }
        stopAfterWait();
        hold(grant, null);
    }

    /** Stops a wait that was granted. The reply to the first request, which comes on another thread, leaves nothing. */
    private void stopAfterWait() {
        if (engine.loop().isCurrent()) {
            wait.stop();
        }
    }

    private void hold(Wait.Grant grant, Link bound) {
        List<Hold> holds = new ArrayList<>(terms.size());
        for (int i = 0; i < terms.size(); i++) {
            holds.add(new Hold(
                    terms.get(i), claims.get(i), id, grant.tokens()[i], grant.sent(), wait.isUnanswered(), bound));
        }
        tell(true, null);
        engine.granted(terms.get(0).key(), wait.hasWaited());
        engine.counts().acquisitions.add(holds.size());
        engine.remove(this);
        undone.complete(null);
        result.complete(holds);
    }

    private void tell(boolean isGranted, RuntimeException error) {
        Duration waited = Duration.ofNanos(Clock.now() - startedAt);
        observe((observer, lock) -> observer.answered(lock, isGranted, waited, error));
    }

    private void observe(BiConsumer<LockObserver, LockObserver.Subject> call) {
        if (id != 0) {
            terms.forEach(each -> engine.observe(observer -> call.accept(observer, each.subject(id))));
        }
    }

    /** Ends it with an error, or with null: without one. A grant that was quicker is given back. */
    @Override
    public void end(RuntimeException why) {
        over(why, why == null || why instanceof LockClosedException);
    }

    /** Withdraws it: the result is no longer wanted. A grant that was quicker is given back. */
    public void cancel() {
        end(null);
        // That grant has perhaps not become a hold yet.
        engine.background().begin();
        result.whenComplete((holds, error) -> {
            if (holds != null) {
                holds.forEach(Hold::releaseInBackground);
            }
            engine.background().end();
        });
    }

    private void over(RuntimeException error, boolean isCancelled) {
        if (!isOver.compareAndSet(false, true)) {
            return;
        }
        // Counted until it is given up: the end of a client waits for it.
        engine.background().begin();
        CompletableFuture<Void> settled = new CompletableFuture<>();
        unsettled(settled);
        begun.thenRun(() -> engine.loop().execute(() -> {
            if (unsettledTimer != null) {
                unsettledTimer.cancel();
            }
            abandon(() -> {
                settled.complete(null);
                undone.complete(null);
            });
            engine.background().end();
        }));
        if (!isCancelled) {
            Counts counts = engine.counts();
            (error == null ? counts.acquisitionsRefused : counts.acquisitionsFailed).add(terms.size());
        }
        tell(false, error);
        engine.remove(this);
        if (error == null) {
            result.complete(null);
        } else if (error instanceof NotReplicatedException) {
            // The program may acquire again at once, so the lock is free by then, unless the server is silent.
            engine.answer(result);
            Loop.Timer silent = engine.loop().after(
                    engine.network().patience(), () -> result.completeExceptionally(error));
            undone.thenRun(() -> {
                silent.cancel();
                result.completeExceptionally(error);
            });
        } else {
            result.completeExceptionally(error);
        }
    }

    private void unsettled(CompletableFuture<Void> until) {
        terms.stream().filter(Terms::isThread).forEach(each -> engine.unsettled(each.owner(), each.key(), until));
    }

    /** Gives the present attempt up at each key. {@code then} runs on a thread that must not be blocked. */
    private void giveUp(Runnable then) {
        // If nothing can have been granted, a refusal is that of the acquire again and is no failure.
        boolean isServed = wait.isUnanswered() || isChecking;
        CompletableFuture<Void> settled = new CompletableFuture<>();
        unsettled(settled);
        AtomicInteger left = new AtomicInteger(claims.size());
        for (int i = 0; i < claims.size(); i++) {
            Terms each = terms.get(i);
            engine.background().begin();
            long until = Clock.plus(Clock.now(), each.lastsFor(each.lease()));
            Claim claim = claims.get(i);
            Release.send(engine, claim.giveUp(), until, released -> {
                if (released.error() != null && (isServed || released.error().isPassing())) {
                    engine.background().fail(claim, released.error());
                }
                if (left.decrementAndGet() == 0) {
                    settled.complete(null);
                    then.run();
                }
                engine.background().end();
            });
        }
    }

    /** The holds; null when they were not granted in time. It completes on a thread that must not be blocked. */
    public CompletableFuture<List<Hold>> result() {
        return result;
    }

    /** Completes when an acquisition that was not granted is given up, as far as the server answers. */
    public CompletableFuture<Void> undone() {
        return undone;
    }
}
