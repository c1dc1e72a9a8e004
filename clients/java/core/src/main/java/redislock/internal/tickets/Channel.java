package redislock.internal.tickets;

import java.util.TreeSet;
import redislock.internal.Clock;

/** The channel of a line: its tickets, its subscription, and its pauses after failures. */
final class Channel<P> {
    private static final long FIRST_PAUSE = 20 * Clock.MILLI;
    private static final long LONGEST_PAUSE = 500 * Clock.MILLI;

    /** A subscribed channel: the node, and the number of the connection. */
    record Live(String node, long number) {}

    final byte[] name;
    final TreeSet<Long> tickets = new TreeSet<>();
    final TreeSet<Long> due = new TreeSet<>();
    Live live;
    /** Raised with each subscription and each end of one. */
    long epoch;
    /** Attempts to subscribe since a request was last answered while subscribed. */
    int subscriptions;
    long pause = FIRST_PAUSE;
    /** Nothing is sent before; zero: no pause. */
    long notBefore;
    /** After a failure requests go one by one, until one is answered. */
    boolean isProbing;
    /** {@code lock.drain} is on: {@code LOCKBUSY} passes. */
    boolean isDraining;
    /** A request that goes alone is under way. */
    boolean isBusy;
    /** The waits park while this is not null: the evidence that the node takes no tickets, and its end. */
    P parking;
    long parkingEnd;
    /** When it last had a ticket. */
    long used;

    Channel(byte[] name, long now) {
        this.name = name;
        this.used = now;
    }

    /** Whether it is unknown that requests are answered {@code QUEUED}. */
    boolean isAlone() {
        return live == null || isProbing;
    }

    /** Whether the channel is subscribed on the connection with this number. */
    boolean isOn(long number) {
        return live != null && live.number() == number;
    }

    /** Counts the reply to a request that was sent in this epoch. */
    void answered(Answer answer, long ofEpoch, long now) {
        if (answer instanceof Answer.Later || answer instanceof Answer.Busy && isDraining) {
            fail(now);
        } else if (answer instanceof Answer.NoSubscriber || answer instanceof Answer.Unsupported) {
            isProbing = false;
        } else {
            isProbing = false;
            isDraining = false;
            pause = FIRST_PAUSE;
            if (epoch == ofEpoch && live != null) {
                subscriptions = 0;
            }
        }
    }

    /** Concurrent failures count as one. */
    void fail(long now) {
        isProbing = true;
        if (now < notBefore) {
            return;
        }
        notBefore = now + pause;
        pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
}
