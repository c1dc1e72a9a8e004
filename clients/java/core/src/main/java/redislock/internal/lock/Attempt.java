package redislock.internal.lock;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import redislock.LockClosedException;
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
    private final List<Member> members = new ArrayList<>();
    private final Terms first;
    private final Wait wait;
    private final AtomicBoolean isOver = new AtomicBoolean();
    /** Whether the grant came between the end of the acquisition and its undoing. */
    private volatile boolean isGrantedLate;
    private volatile Loop.Timer overtime;
    private volatile Reservation.Waiter reserving;

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
                certain, true, first.owner != null);
        wait = new Wait(engine.network(), request, end, (grant, error) -> {
            if (grant == null) {
                over(error, false);
            } else {
                granted(grant);
            }
        });
    }

    @Override
    void begin() {
        if (first.owner == null) {
            request();
        } else {
            reserve(0);
        }
    }

    /** Reserves the owner's name at each key, then sends the request. */
    private void reserve(int place) {
        for (int i = place; i < members.size(); i++) {
            Member member = members.get(i);
            Reservation.Name name = Reservation.nameOf(engine.network().name(), member.claim);
            Reservation free = Reservation.tryReserve(name);
            if (free == null) {
                int next = i;
                // On the client's thread, which also passes the name on and ends the acquisition: one after another.
                engine.loop().execute(() -> awaitName(next, name));
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

    private void awaitName(int place, Reservation.Name name) {
        if (isOver.get()) {
            members.forEach(member -> member.reservation.free());
            return;
        }
        Loop loop = engine.loop();
        reserving = Reservation.reserve(name, reserved -> loop.execute(() -> {
            cancelOvertime();
            members.get(place).reservation = reserved;
            reserve(place + 1);
        }));
        overtime = loop.at(end, () -> {
            Reservation.Waiter waiter = reserving;
            if (waiter != null && waiter.cancel() && isOver.compareAndSet(false, true)) {
                members.forEach(member -> member.reservation.free());
                undone().complete(null);
                notGranted(null, false, members.size());
            }
        });
    }

    private void request() {
        reserving = null;
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
        engine.loop().execute(() -> {
            // If the name is being handed over, its receiver frees it.
            if (reserving != null) {
                reserving.cancel();
            }
            undo();
            engine.background().end();
        });
        notGranted(error, isCancelled, members.size());
    }

    private void undo() {
        boolean hasTicket = wait.hasTicket();
        long underWayUntil = wait.stop();
        boolean isUnderWay = underWayUntil > Clock.now() || isGrantedLate;
        AtomicInteger left = new AtomicInteger(members.size());
        for (Member member : members) {
            // The server keeps the place of an ended wait for a while, so that the owner can ask again. A fresh owner
            // never does, so its place is withdrawn. A named owner may do so, and may have been granted the lock
            // meanwhile.
            boolean keepsPlace = wait.wasQueued() && !member.reservation.isNamed();
            First covers = hasTicket ? First.TICKET : keepsPlace || isUnderWay ? First.EVERYTHING : First.NOTHING;
            Runnable onReleased = () -> {
                if (left.decrementAndGet() == 0) {
                    engine.loop().execute(wait::closeSlices);
                    undone().complete(null);
                }
            };
            new Undo(engine, member.claim, member.terms.lease, covers, null, underWayUntil, 0, member.reservation,
                    onReleased).start();
        }
    }

    private void cancelOvertime() {
        Loop.Timer timer = overtime;
        if (timer != null) {
            timer.cancel();
        }
    }
}
