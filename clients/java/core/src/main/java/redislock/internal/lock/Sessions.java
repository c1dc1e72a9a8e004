package redislock.internal.lock;

import java.util.Arrays;
import java.util.List;
import redislock.LockException;
import redislock.internal.Clock;
import redislock.internal.net.Caller;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;

/** What the server knows of a hold that is bound to a connection. */
final class Sessions {
    private Sessions() {
    }

    /** Receives the rest of a lease in nanoseconds, null when the owner holds nothing, or an error. */
    interface Receiver {
        void receive(Long left, LockException error);
    }

    /** The rest of this owner's lease, by {@code LOCK.INFO}. */
    static void leaseLeft(Caller caller, Claim claim, long patience, Receiver then) {
        caller.call(Cmd.of("LOCK.INFO", claim.key()), patience, reply -> {
            if (reply.error() != null) {
                then.receive(null, reply.error());
            } else {
                then.receive(leaseOf(reply.value(), claim.owner()), null);
            }
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
