package redislock.internal.lock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.LockOptions;
import redislock.Lost;
import redislock.LockLostException;
import redislock.LostReason;
import redislock.Mode;
import redislock.Permit;
import redislock.RefusedException;
import redislock.Released;
import redislock.WrongTypeException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.net.Cmd;
import redislock.internal.net.Link;

/** A held lock or permit: what programs see of it, its loss and its release. Its {@link Lease} is renewed. */
public final class Hold implements Permit {
    /** The shortest pause between two looks for the thread of a lost hold. */
    private static final long KEEPER_CHECK = 1_000 * Clock.MILLI;

    private final Engine engine;
    private final Terms terms;
    private final Claim claim;
    /** Of the acquisition, for its events. */
    private final long id;
    private final long token;
    /** Whether a request of the acquisition has no reply, and may be served after the release. */
    private final boolean isUnanswered;
    private final Lease lease;
    private final CompletableFuture<Lost> lostFuture = new CompletableFuture<>();
    private final AtomicReference<Lost> lost = new AtomicReference<>();
    /** Null until it is released, closed or left: then no loss is reported any more. */
    private final AtomicReference<CompletableFuture<Released>> releasing = new AtomicReference<>();
    /** Whether the failure of the release is recorded. */
    private final AtomicBoolean isReported = new AtomicBoolean();
    private final long grantedAt = Clock.now();
    /** The only thread that may unlock it; null: a guard. */
    private volatile Thread keeper;
    /** Whether the end of that thread is logged. */
    private boolean isLogged;
    /** Whether the program has asked for the future of the loss. */
    private volatile boolean isWatched;
    /** The timer of the end of a lost hold, or null. */
    private volatile Loop.Timer forgetting;
    /** Runs once when the hold is released or left; null: nothing, or it has run. */
    private final AtomicReference<Runnable> onFinished = new AtomicReference<>();

    /** {@code bound} is the connection of a session, otherwise null. */
    Hold(Terms terms, Claim claim, long id, long token, Moment sent, boolean isUnanswered, Link bound) {
        this.engine = terms.engine();
        this.terms = terms;
        this.claim = claim;
        this.id = id;
        this.token = token;
        this.isUnanswered = isUnanswered;
        this.lease = new Lease(this, terms, sent, bound);
        engine.counts().holds.incrementAndGet();
        lease.start();
        engine.add(this);
    }

    /**
     * The hold of an owner that has acquired it elsewhere; the calling thread waits for the reply.
     *
     * @throws LockLostException when that grant is over
     */
    public static Hold resume(Terms terms, long token) {
        Claim claim = Terms.claims(List.of(terms)).get(0);
        Moment sent = Moment.now();
        boolean isHeld;
        try {
            isHeld = Long.valueOf(1).equals(terms.engine().call(claim.renew(terms.lease(), token)));
        } catch (WrongTypeException overwritten) {
            isHeld = false;
        }
        if (!isHeld) {
            throw lost(claim, token);
        }
        Engine engine = terms.engine();
        long id = engine.nextEvent();
        engine.counts().acquisitions.increment();
        engine.observe(observer -> observer.asked(terms.subject(id)));
        engine.observe(observer -> observer.answered(terms.subject(id), true, Duration.ZERO, null));
        return new Hold(terms, claim, id, token, sent, false, null);
    }

    private static LockLostException lost(Claim claim, long token) {
        Lost loss = Lost.of(claim.key(), token, LostReason.TAKEN);
        return new LockLostException(loss.toString(), loss);
    }

    Claim claim() {
        return claim;
    }

    /** Binds the hold to a thread. {@code whenFinished} runs when it is released or left, on any thread. */
    public void keptBy(Thread thread, Runnable whenFinished) {
        keeper = thread;
        onFinished.set(whenFinished);
        if (isFinished()) {
            runOnFinished();
        }
        forgetWithThread();
    }

    private void runOnFinished() {
        Runnable action = onFinished.getAndSet(null);
        if (action != null) {
            action.run();
        }
    }

    /** Logs once that nothing unlocks it any more. It is renewed nevertheless: a thread may end while the work that
     * the lock protects goes on. */
    void checkKeeper() {
        Thread thread = keeper;
        if (thread != null && !thread.isAlive() && !isLogged) {
            isLogged = true;
            engine.network().log().log(System.Logger.Level.WARNING,
                    "the thread \"{0}\" has ended without unlocking {1}, which is renewed until its client is closed",
                    thread.getName(), claim.name());
        }
    }

    boolean isFinished() {
        return releasing.get() != null;
    }

    /** Reports a loss: once, before the lease ends, and not after a release. */
    void lose(LostReason reason, String code, String text) {
        Lost loss = new Lost(claim.name(), token, reason, code, text);
        if (isFinished() || !lost.compareAndSet(null, loss)) {
            return;
        }
        lease.stop();
        engine.counts().losses.increment();
        engine.observe(observer -> observer.lost(terms.subject(id), reason));
        // Where nothing listens the log tells it.
        boolean isHeard = terms.onLost() != null || isWatched;
        engine.network().log().log(isHeard ? System.Logger.Level.DEBUG : System.Logger.Level.WARNING, "{0}", loss);
        // Two threads: neither the callback nor a stage of the future that blocks holds the other up.
        if (terms.onLost() != null) {
            engine.callBack(() -> terms.onLost().accept(loss));
        }
        engine.callBack(() -> lostFuture.complete(loss));
        forgetWithThread();
    }

    /** Forgets a lost hold whose thread has ended, when its lease is certainly over: nothing can unlock it any more. It
     * is not released, so that a fixed lease lasts as long as the program has said. */
    private void forgetWithThread() {
        if (keeper == null || lost.get() == null) {
            return;
        }
        forgetting = engine.loop().at(Math.max(lease.latestEnd(), Clock.plus(Clock.now(), KEEPER_CHECK)), () -> {
            if (keeper.isAlive()) {
                forgetWithThread();
            } else {
                end();
            }
        });
        if (isFinished()) {
            forgetting.cancel();
        }
    }

    private void tellReleased() {
        if (lost.get() == null) {
            Duration held = Duration.ofNanos(Clock.now() - grantedAt);
            engine.observe(observer -> observer.released(terms.subject(id), held));
        }
    }

    /** The server has set the last lease. */
    void left() {
        engine.counts().releases.increment();
        tellReleased();
        end();
    }

    /** A renewal is late. */
    void late(long by) {
        engine.observe(observer -> observer.late(terms.subject(id), Duration.ofNanos(by)));
    }

    /** Ends the hold in this process; nothing is sent. */
    void end() {
        if (releasing.compareAndSet(null, CompletableFuture.completedFuture(Released.NOT_HELD))) {
            finish();
            over();
        }
    }

    public Engine engine() {
        return engine;
    }

    /** The loss, or null. */
    public Lost loss() {
        return lost.get();
    }

    @Override
    public long token() {
        return token;
    }

    @Override
    public int count() {
        return claim.kind().count();
    }

    @Override
    public byte[] key() {
        return claim.key().clone();
    }

    @Override
    public String owner() {
        return new String(claim.owner(), StandardCharsets.UTF_8);
    }

    @Override
    public CompletableFuture<Lost> lost() {
        isWatched = true;
        return lostFuture.copy();
    }

    @Override
    public LostReason lostReason() {
        Lost loss = lost.get();
        return loss == null ? null : loss.reason();
    }

    @Override
    public Duration validFor() {
        LostReason reason = lostReason();
        if (isFinished() || reason != null && reason != LostReason.UNCONFIRMED) {
            return Duration.ZERO;
        }
        return Duration.ofNanos(lease.left());
    }

    @Override
    public boolean renew(Duration newLease) {
        return renew(newLease, Clock.NEVER);
    }

    /**
     * The same, until this moment at the latest.
     *
     * @throws LockConnectionException when there is no answer by then; the lease may be set nevertheless
     */
    public boolean renew(Duration newLease, long until) {
        Blocking.check();
        CompletableFuture<Boolean> renewed = lease.change(newLease, false);
        if (until != Clock.NEVER) {
            Blocking.await(renewed, Clock.left(until));
            if (!renewed.isDone()) {
                throw new LockConnectionException(engine.network().server(), "no answer in time", null);
            }
        }
        return Blocking.get(renewed);
    }

    @Override
    public CompletableFuture<Boolean> renewAsync(Duration newLease) {
        return engine.forProgram(lease.change(newLease, false));
    }

    @Override
    public boolean leave(Duration lastLease) {
        Blocking.check();
        return awaitLeft(startLeave(lastLease));
    }

    /** Asks for the last lease. */
    public CompletableFuture<Boolean> startLeave(Duration lastLease) {
        return lease.change(lastLease, true);
    }

    /** Whether it was held to the end. The hold ends here also when it was not. */
    public boolean awaitLeft(CompletableFuture<Boolean> leaving) {
        boolean isHeld = Blocking.get(leaving);
        end();
        return isHeld;
    }

    @Override
    public boolean note(String note) {
        byte[] text = LockOptions.defaults().note(note).note().orElseThrow();
        Object reply;
        try {
            reply = renewNow("NOTE", text);
        } catch (WrongTypeException overwritten) {
            engine.loop().execute(() -> lose(LostReason.REFUSED, overwritten.code(), overwritten.text()));
            return false;
        }
        if (Long.valueOf(0).equals(reply)) {
            loseOnLoop();
        }
        return Long.valueOf(1).equals(reply);
    }

    /** Renews, beside the requests of the lease, with these words at the end. */
    private Object renewNow(Object... words) {
        long asked = lease.present();
        try {
            return engine.call(claim.renew(asked, token).with(words));
        } catch (LockConnectionException unanswered) {
            engine.loop().execute(() -> lease.unanswered(asked));
            throw unanswered;
        }
    }

    @Override
    public Object execute(Object... words) {
        // It is sent after another request.
        Object[] command = words.clone();
        for (Object word : command) {
            if (!(word instanceof CharSequence || word instanceof byte[] || word instanceof Number)) {
                throw new IllegalArgumentException("a word of a command is text, bytes or a number, not "
                        + (word == null ? null : word.getClass().getName()));
            }
        }
        Cmd probe = Cmd.of("LOCK.INFO", new Cmd.Key(claim.key()));
        Cmd run = Cmd.of("LOCK.IF", new Cmd.Key(claim.key()), token).with(command);
        try {
            return engine.callOnce(probe, run);
        } catch (RefusedException refused) {
            boolean isFenced = refused.code().equals("FENCED");
            if (!isFenced && !refused.code().equals("WRONGTYPE")) {
                throw refused;
            }
            // Readers may get another token while they hold the lock, and the type may be that of the command's own
            // key.
            boolean isProof = isFenced && claim.kind().mode() != Mode.READ;
            if (!isProof && !isTaken()) {
                throw refused;
            }
            loseOnLoop();
            throw lost(claim, token);
        }
    }

    /** A reply has proved the loss. */
    private void loseOnLoop() {
        engine.loop().execute(() -> lose(LostReason.TAKEN, "", ""));
    }

    /** Renews, to ask whether the server has the hold. False as well where it does not say. */
    private boolean isTaken() {
        try {
            return Long.valueOf(0).equals(renewNow());
        } catch (LockException failed) {
            return failed instanceof WrongTypeException;
        }
    }

    @Override
    public Released release() {
        Blocking.check();
        return awaitRelease(startRelease(false), Clock.plus(Clock.now(), engine.network().patience()));
    }

    /**
     * The result of a release.
     *
     * @throws LockConnectionException when it is not known at that moment; the release goes on in the background
     */
    public Released awaitRelease(CompletableFuture<Released> release, long until) {
        Blocking.await(release, Clock.left(until));
        if (release.isDone()) {
            return Blocking.get(release);
        }
        // Nothing waits for it any more, so its failure is that of background work.
        release.whenComplete((released, error) -> {
            if (error instanceof RuntimeException failure) {
                report(failure);
            }
        });
        throw new LockConnectionException(engine.network().server(),
                "no answer in time; the release goes on in the background", null);
    }

    /** Records the failure of a release for which nothing waits, once. */
    private void report(RuntimeException error) {
        if (isReported.compareAndSet(false, true)) {
            engine.background().fail(claim, error);
        }
    }

    @Override
    public CompletableFuture<Released> releaseAsync() {
        return engine.forProgram(startRelease(false));
    }

    @Override
    public void close() {
        Lost loss = closeQuietly();
        if (loss != null) {
            throw new LockLostException(loss.toString(), loss);
        }
    }

    /** Releases it in the background. Returns the loss that was reported before; null: none, or it was released. */
    public Lost closeQuietly() {
        Lost loss = isFinished() ? null : lost.get();
        startRelease(true);
        return loss;
    }

    /** The same as {@link #close}, with the result. */
    public CompletableFuture<Released> releaseInBackground() {
        return startRelease(true);
    }

    /** Whether the lease is not renewed in the background. */
    public boolean isFixed() {
        return terms.isFixed();
    }

    /** Releases it; the first call decides. The future completes on a thread that must not be blocked. */
    public CompletableFuture<Released> startRelease(boolean isInBackground) {
        CompletableFuture<Released> result = new CompletableFuture<>();
        if (!releasing.compareAndSet(null, result)) {
            return releasing.get();
        }
        finish();
        tellReleased();
        if (isInBackground && lostReason() == LostReason.TAKEN && !isUnanswered) {
            over();
            result.complete(Released.NOT_HELD);
            return result;
        }
        engine.background().begin();
        engine.answer(result);
        CompletableFuture<Void> settled = new CompletableFuture<>();
        if (terms.isThread()) {
            engine.unsettled(claim.owner(), claim.key(), settled);
        }
        long end = Math.max(lease.latestEnd(), Clock.plus(Clock.now(), terms.lastsFor(engine.network().patience())));
        Release.send(engine, isUnanswered ? claim.giveUp() : claim.release(token), end, answer -> {
            if (answer.error() == null) {
                engine.counts().releases.increment();
            }
            over();
            settled.complete(null);
            if (answer.error() == null) {
                warnIfLost(isInBackground && answer.released() == Released.NOT_HELD);
                result.complete(answer.released());
            } else {
                if (isInBackground) {
                    report(answer.error());
                }
                result.completeExceptionally(answer.error());
            }
            engine.background().end();
        });
        return result;
    }

    /** Nothing else tells the program that a lock was gone when it was released in the background. */
    private void warnIfLost(boolean isGone) {
        if (isGone && lost.get() == null && validFor().isZero()) {
            engine.network().log().log(System.Logger.Level.WARNING, "{0}",
                    Lost.of(claim.key(), token, LostReason.TAKEN));
        }
    }

    private void finish() {
        lease.stop();
        Loop.Timer timer = forgetting;
        if (timer != null) {
            timer.cancel();
        }
        runOnFinished();
    }

    private void over() {
        engine.remove(this);
        engine.counts().holds.decrementAndGet();
        lease.close();
    }

    /** Shows no owner. */
    @Override
    public String toString() {
        return "Guard[" + claim.name() + ", token " + token + "]";
    }
}
