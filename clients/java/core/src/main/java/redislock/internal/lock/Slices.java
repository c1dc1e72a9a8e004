package redislock.internal.lock;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import redislock.internal.Clock;
import redislock.internal.Moment;
import redislock.internal.Pause;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;

/**
 * The slices of a parked wait, used on the client's thread.
 *
 * <p>A slice ends before the response timeout of its connection. The next one is sent earlier, through another
 * connection, and takes over the place of its predecessor, which then gets nil. So the wait is in the server's queue
 * without a gap and is never overtaken.
 */
final class Slices {
    private final Network network;
    private final byte[] key;
    private final Consumer<Answer> listener;
    /** Those that were sent and not answered yet, the oldest first: usually one, briefly two. */
    private final List<Slice> open = new ArrayList<>();
    /** The caller of a finished slice, with its connection and its route, for the next one. */
    private Caller spare;
    /** The end of the newest slice, and when the next one is due; zero before the first. */
    private long lastEnd;
    private long nextDue;
    private long underWayUntil;
    private boolean isOver;

    private record Slice(Caller caller, Moment sent) {}

    /**
     * The reply to a slice.
     *
     * @param sent     a moment before the slice was sent
     * @param result   the reply
     * @param isNewest whether no later slice was sent
     */
    record Answer(Moment sent, Caller.Result result, boolean isNewest) {}

    Slices(Network network, byte[] key, Consumer<Answer> listener) {
        this.network = network;
        this.key = key;
        this.listener = listener;
    }

    int size() {
        return open.size();
    }

    /** The end of the newest slice; zero before the first. */
    long lastEnd() {
        return lastEnd;
    }

    /** When the next slice is due; zero before the first. */
    long nextDue() {
        return nextDue;
    }

    /** Sends a request that is parked for this long. */
    void send(Cmd command, long length) {
        long now = Clock.now();
        lastEnd = now + length;
        // Spread, because many waiters may have started at the same moment.
        nextDue = now + length / 2 + Pause.partOf(length / 4);
        Caller caller = spare != null ? spare : Caller.waiting(network, key);
        spare = null;
        Slice slice = new Slice(caller, Moment.now());
        open.add(slice);
        caller.callOnLoop(command, length + network.patience() / 2, result -> answered(slice, result));
    }

    private void answered(Slice slice, Caller.Result result) {
        boolean isNewest = open.indexOf(slice) == open.size() - 1;
        boolean wasOpen = open.remove(slice);
        if (slice.caller().wasUnanswered()) {
            underWayUntil = Clock.now() + network.patience();
            slice.caller().close();
        }
        if (isOver) {
            slice.caller().keepOpen();
        } else if (wasOpen) {
            if (spare != null) {
                spare.keepOpen();
            }
            spare = slice.caller();
        }
        if (wasOpen && !isOver) {
            listener.accept(new Answer(slice.sent(), result, isNewest));
        }
    }

    /** Until when a request without a reply may still be served; zero: there is none. */
    long underWayUntil() {
        return open.isEmpty() ? underWayUntil : Clock.now() + network.patience();
    }

    /** Sends nothing any more: a slice whose connection is still being opened would be served after the release. */
    void abandon() {
        open.forEach(slice -> slice.caller().abandon());
    }

    /** Ends the wait: pending connections are closed, and the server removes the wait; idle ones are kept. */
    void close() {
        isOver = true;
        for (Slice slice : open) {
            slice.caller().abandon();
            slice.caller().close();
        }
        open.clear();
        if (spare != null) {
            spare.keepOpen();
            spare = null;
        }
    }
}
