package redislock.internal.lock;

import java.util.Arrays;
import java.util.List;
import redislock.LockException;
import redislock.Mode;
import redislock.internal.Clock;
import redislock.internal.Moment;
import redislock.internal.net.Link;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;

/**
 * The leases of holds that are bound to a connection. They are a setting of the server, which may change.
 *
 * <p>The reply about a key that is read has all its readers, so that N readers would read N times about N. So the
 * readers of a client share what one of them has read.
 */
final class Sessions {
    /** The lease of readers: a setting that all nodes of a cluster are expected to share. */
    private volatile Known ofReaders;

    /** A lease in nanoseconds, read at this moment. */
    private record Known(long lease, Moment read) {
        /** A hold that reads it itself knows it for as long: until its next renewal. */
        boolean isFresh() {
            return read.elapsed() < lease / 3;
        }
    }

    /** Receives the rest of a lease in nanoseconds at a moment, null when the owner holds nothing, or an error. */
    interface Receiver {
        void receive(Long left, Moment at, LockException error);
    }

    /** The rest of this owner's lease, which was renewed by a request of this moment; by {@code LOCK.INFO}. */
    void leaseLeft(Link link, Claim claim, Moment renewed, long patience, Receiver then) {
        boolean isReader = claim.kind().mode() == Mode.READ;
        Known known = ofReaders;
        if (isReader && known != null && known.isFresh()) {
            then.receive(known.lease(), renewed, null);
            return;
        }
        Moment asked = Moment.now();
        link.call(Cmd.of("LOCK.INFO", new Cmd.Key(claim.key())), patience, reply -> {
            if (reply.error() != null) {
                then.receive(null, asked, reply.error());
                return;
            }
            Long left = leaseOf(reply.value(), claim.owner());
            // An owner that also writes has the lease of its write lock.
            if (isReader && left != null && "read".equals(Reply.text(Reply.field(reply.value(), "mode")))) {
                ofReaders = new Known(left, asked);
            }
            then.receive(left, asked, null);
        });
    }

    private static Long leaseOf(Object info, byte[] owner) {
        if (Reply.field(info, "holders") instanceof List<?> holders) {
            for (Object holder : holders) {
                boolean isOwn = Reply.field(holder, "owner") instanceof byte[] name && Arrays.equals(name, owner);
                if (isOwn && Reply.field(holder, "pttl") instanceof Long millis && millis >= 0) {
                    return millis * Clock.MILLI;
                }
            }
        }
        return null;
    }
}
