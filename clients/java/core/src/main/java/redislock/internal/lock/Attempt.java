package redislock.internal.lock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import redislock.DeadlockException;
import redislock.LockClosedException;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.lock.Undo.First;
import redislock.internal.net.Reply;

/**
 * An acquisition with a lease. The first request is sent by the calling thread, and a grant that answers it needs no
 * other thread; everything else happens on the client's thread. Not granted, it is undone.
 */
final class Attempt extends Acquisition {
    /** How long the first request waits for the failed releases of its owner, which are repeated at once: a server that
     * can be reached again answers in that time. */
    private static final long SETTLING = 100 * Clock.MILLI;

    private final List<Member> members = new ArrayList<>();
    private final Terms first;
    private final Wait wait;
    private final AtomicBoolean isOver = new AtomicBoolean();
    /** Whether the grant came between the end of the acquisition and its undoing. */
    private volatile boolean isGrantedLate;
    private volatile Loop.Timer overtime;
    private volatile Reservation.Waiter reserving;
    /** Whether a refusal as a deadlock may be that of something its owner does not want: see {@link Unsettled}. */
    private volatile boolean isDoubtful;
    private boolean isAskedAgain;
    /** Until when a release of {@link #giveBack} may be served. */
    private long releasesUntil;
    /** Whether such a release has no answer. */
    private boolean isGivingBack;

    /** The part of the request that concerns one key. */
    private static final class Member {
        final Terms terms;
        final Claim claim;
        volatile Reservation reservation = Reservation.NONE;

        Member(Terms terms, Claim claim) {
            this.terms = terms;
            this.claim = claim;
        }
    }

    Attempt(List<Terms> terms, long end) {
        super(terms.get(0).engine, end);
        first = terms.get(0);
        byte[] owner = first.nextOwner();
        terms.forEach(each -> members.add(new Member(each, each.claimBy(owner))));
        List<Claim> claims = members.stream().map(member -> member.claim).toList();
        long certain = terms.stream().mapToLong(each -> each.reportedAfter(each.lease)).min().orElse(0);
        Wait.Request request = new Wait.Request(first.key, Terms.acquire(claims, first.lease), first.longestSlice(),
                certain, true, first.owner != null, claims.size() == 1 ? null : this::giveBack);
        wait = new Wait(engine.network(), request, end, (grant, error) -> {
            if (grant != null) {
                granted(grant);
            } else if (error instanceof DeadlockException) {
                refused(error);
            } else {
                over(error, false);
            }
        });
    }

    @Override
    void begin() {
        Unsettled unsettled = engine.unsettled();
        if (first.owner == null) {
            request();
        } else if (unsettled.has(first.owner)) {
            isDoubtful = true;
            engine.loop().execute(() ->
                    unsettled.await(first.owner, Unsettled.Part::hurry, SETTLING, () -> reserve(0)));
        } else {
            reserve(0);
        }
    }

    /** A deadlock. If it may be that of something its owner does not want, this is settled and the request repeated. */
    private void refused(LockException error) {
        boolean mayAskAgain = first.owner != null && !isAskedAgain;
        if (mayAskAgain && (isDoubtful || engine.unsettled().has(first.owner))) {
            isAskedAgain = true;
            engine.unsettled().await(
                    first.owner, Unsettled.Part::settle, engine.network().patience(), wait::askAgain);
        } else {
            over(error, false);
        }
    }

    /** Releases all keys, and runs this when no such release can be served any more: it would end the next grant. */
    private void giveBack(Runnable then) {
        Loop loop = engine.loop();
        long until = Clock.now() + engine.network().patience();
        releasesUntil = until + engine.network().patience();
        isGivingBack = true;
        AtomicInteger left = new AtomicInteger(members.size());
        AtomicLong late = new AtomicLong();
        AtomicBoolean hasFailed = new AtomicBoolean();
        for (Member member : members) {
            Release.send(engine, member.claim, first.owner != null, member.claim.release(null), until, released -> {
                late.accumulateAndGet(released.underWayUntil(), Math::max);
                if (released.error() != null) {
                    hasFailed.set(true);
                }
                if (left.decrementAndGet() == 0) {
                    loop.execute(() -> {
                        releasesUntil = late.get();
                        isGivingBack = hasFailed.get();
                        loop.at(releasesUntil, then);
                    });
                }
            });
        }
    }

    /** Reserves the owner's name at each key, then sends the request. */
    private void reserve(int place) {
        for (int i = place; i < members.size(); i++) {
            Member member = members.get(i);
            Reservation.Name name = Reservation.nameOf(member.claim, engine);
            Reservation free = Reservation.tryReserve(name, engine);
            if (free == null) {
                awaitName(i, name);
                return;
            }
            member.reservation = free;
        }
        if (isOver.get()) {
            members.forEach(member -> member.reservation.free());
        } else {
            request();
        }
    }

    /** Enters the queue for the name at once, in this thread: before every acquisition that is made later. */
    private void awaitName(int place, Reservation.Name name) {
        Loop loop = engine.loop();
        Reservation.Waiter waiter = new Reservation.Waiter(name, engine, reserved -> loop.execute(() -> {
            reserving = null;
            cancelOvertime();
            members.get(place).reservation = reserved;
            reserve(place + 1);
        }));
        reserving = waiter;
        waiter.start();
        loop.execute(() -> {
            if (isOver.get()) {
                waiter.cancel();
                members.forEach(member -> member.reservation.free());
            } else if (reserving == waiter) {
                overtime = loop.at(end, () -> nameIsLate(false));
            }
        });
    }

    /** The owner's name is not free at the end. If it is only to be settled, it is awaited as a reply is, and the error
     * is that of a reply: the lock is perhaps free. */
    private void nameIsLate(boolean isOvertime) {
        Reservation.Waiter waiter = reserving;
        boolean isForAnswer = waiter != null && waiter.isForAnswer();
        if (isForAnswer && !isOvertime) {
            overtime = engine.loop().at(overtimeEnd(engine, end), () -> nameIsLate(true));
        } else if (waiter != null && waiter.cancel() && isOver.compareAndSet(false, true)) {
            members.forEach(member -> member.reservation.free());
            undone().complete(null);
            notGranted(isForAnswer ? unsettled() : null, false, members.size());
        }
    }

    private void request() {
        if (end != Clock.NEVER) {
            overtime = engine.loop().at(overtimeEnd(engine, end), () -> over(noAnswer(), false));
        }
        wait.first(asked -> {
            if (wait.isUsable(asked)) {
                granted(new Wait.Grant(asked.tokens(), asked.sent()));
            } else {
                engine.loop().execute(() -> {
                    if (!isOver.get()) {
                        wait.resume(asked);
                    }
                });
            }
        });
    }

    private void granted(Wait.Grant grant) {
        if (grant.tokens().length != members.size()) {
            over(Reply.foreign(engine.network().name()), false);
            return;
        }
        if (!isOver.compareAndSet(false, true)) {
            // Ended meanwhile: the undoing, which follows, ends the grant too.
            isGrantedLate = true;
            return;
        }
        cancelOvertime();
        wait.taken();
        long underWayUntil = wait.stop();
        wait.closeSlices();
        List<Hold> holds = new ArrayList<>(members.size());
        for (int i = 0; i < members.size(); i++) {
            holds.add(hold(members.get(i), grant.tokens()[i], grant.sent(), underWayUntil));
        }
        granted(holds, wait.wasQueued());
    }

    private static Hold hold(Member member, long token, Moment sent, long underWayUntil) {
        Hold.Leftovers leftovers = new Hold.Leftovers(underWayUntil, member.reservation);
        return new Hold(member.terms, member.claim, token, sent, leftovers, null);
    }

    @Override
    void stop(RuntimeException why) {
        over(why, why == null || why instanceof LockClosedException);
    }

    private void over(RuntimeException error, boolean isCancelled) {
        if (!isOver.compareAndSet(false, true)) {
            return;
        }
        cancelOvertime();
        // Counted until then: the end of a client waits for it.
        engine.background().begin();
        Withdrawal withdrawal = first.owner == null ? null : new Withdrawal(first.owner);
        if (withdrawal != null) {
            engine.unsettled().add(withdrawal);
        }
        engine.loop().execute(() -> {
            // If the name is being handed over, its receiver frees it.
            if (reserving != null) {
                reserving.cancel();
            }
            undo();
            if (withdrawal != null) {
                engine.unsettled().remove(withdrawal);
            }
            engine.background().end();
        });
        notGranted(error, isCancelled, members.size());
    }

    /** The time until the release is sent, on the client's thread: the next request of the owner follows it. Not a
     * record: those of two attempts of one owner would be equal, and the end of one the end of both. */
    private static final class Withdrawal implements Unsettled.Part {
        private final byte[] owner;

        Withdrawal(byte[] owner) {
            this.owner = owner;
        }

        @Override
        public byte[] owner() {
            return owner;
        }

        @Override
        public CompletableFuture<?> hurry() {
            return null;
        }

        @Override
        public CompletableFuture<?> settle() {
            return CompletableFuture.completedFuture(null);
        }
    }

    private void undo() {
        boolean hasTicket = wait.hasTicket();
        long underWayUntil = wait.stop();
        // One that can no longer be served may have been granted before.
        boolean mayBeGranted = underWayUntil > 0 || isGrantedLate || isGivingBack;
        AtomicInteger left = new AtomicInteger(members.size());
        for (Member member : members) {
            // The server keeps the place of an ended wait for a while, so that the owner can ask again. A fresh owner
            // never does, so its place is withdrawn. A named owner may do so, and may have been granted the lock
            // meanwhile.
            boolean keepsPlace = wait.wasQueued() && !member.reservation.isNamed();
            First covers = hasTicket ? First.TICKET : keepsPlace || mayBeGranted ? First.EVERYTHING : First.NOTHING;
            Runnable onReleased = () -> {
                if (left.decrementAndGet() == 0) {
                    engine.loop().execute(wait::closeSlices);
                    undone().complete(null);
                }
            };
            new Undo(engine, member.claim, member.terms.lease, covers, underWayUntil, releasesUntil,
                    member.reservation, onReleased).start();
        }
    }

    private void cancelOvertime() {
        Loop.Timer timer = overtime;
        if (timer != null) {
            timer.cancel();
        }
    }
}
