package redislock.internal.lock;

import io.lettuce.core.cluster.SlotHash;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.function.Consumer;
import redislock.LockObserver;
import redislock.LockOptions;
import redislock.Lost;
import redislock.Mode;
import redislock.internal.Clock;
import redislock.internal.lock.Claim.Kind;

/**
 * The terms of an acquisition. The arrays are not changed.
 *
 * @param lease     in nanoseconds, of whole milliseconds
 * @param margin    in nanoseconds; null: a part of the lease
 * @param owner     null: a fresh owner for each acquisition
 * @param isThread  whether the owner is a thread of this process, whose acquisitions have numbers
 * @param shares    whether the owner has a hold of another mode at the key
 * @param isFixed   whether the lease is not renewed
 * @param options   the program's options, whose lease, owner and {@code isFixed} may be others
 */
public record Terms(Engine engine, byte[] key, Kind kind, long lease, Long margin, byte[] owner, boolean isThread,
        boolean shares, boolean isFixed, LockOptions options) {
    /** The longest time until a server notices that a connection has vanished, by the default {@code tcp-keepalive}. */
    private static final long VANISHED = 600_000 * Clock.MILLI;

    /** The terms of a lock in this mode; null: of a semaphore. */
    public static Terms of(Engine engine, byte[] key, Mode mode, LockOptions options) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(options, "options");
        boolean isSemaphore = mode == null;
        if (options.isSession() && (isSemaphore || options.isFixedLease())) {
            throw new IllegalArgumentException("a session is for locks without a fixed lease");
        }
        if (options.isSession() && options.replicas().isPresent()) {
            throw new IllegalArgumentException("replicas are not waited for with a session");
        }
        if (!isSemaphore && options.limit().isPresent()) {
            throw new IllegalArgumentException("a limit is an option of semaphores");
        }
        if (!isSemaphore && options.count() > 1) {
            throw new IllegalArgumentException("a count is an option of semaphores");
        }
        if (options.count() > options.limit().orElse(Integer.MAX_VALUE)) {
            throw new IllegalArgumentException("a count is at most the limit");
        }
        long lease = Clock.nanos(options.lease());
        long margin = Clock.nanos(options.margin());
        if (margin > lease / 2) {
            throw new IllegalArgumentException(
                    "a margin is at most half of the lease: before it the lock is renewed");
        }
        byte[] owner = options.owner().orElse(null);
        checkOwner(mode, owner);
        byte[] note = options.note().orElse(null);
        if (note != null && mode != Mode.EXCLUSIVE) {
            throw new IllegalArgumentException("a note is an option of exclusive locks");
        }
        Kind kind = new Kind(mode, options.limit().orElse(null), options.count(), note);
        boolean isDefault = options.margin().equals(options.lease().dividedBy(6));
        return new Terms(engine, key.clone(), kind, lease, isDefault ? null : (Long) margin, owner,
                false, false, options.isFixedLease(), options);
    }

    private static void checkOwner(Mode mode, byte[] owner) {
        boolean isReadWrite = mode == Mode.READ || mode == Mode.WRITE;
        if (owner != null && isReadWrite) {
            String text = new String(owner, StandardCharsets.ISO_8859_1);
            if (text.equals("mode") || text.endsWith(":write")) {
                throw new IllegalArgumentException(
                        "an owner of a read-write lock is not mode and does not end in :write");
            }
        }
    }

    /** The same for a thread of this process; {@code shares}: it has a hold of another mode at the key. */
    public Terms ownedBy(byte[] thread, boolean shares) {
        return new Terms(engine, key, kind, lease, margin, thread, true, shares, isFixed, options);
    }

    /** The same for an owner that the program names, whose hold it takes over. */
    public Terms namedBy(String name) {
        if (isSession()) {
            throw new IllegalArgumentException("a hold with a session is not resumed: it ends with its connection");
        }
        byte[] named = LockOptions.defaults().owner(name).owner().orElseThrow();
        checkOwner(mode(), named);
        return new Terms(engine, key, kind, lease, margin, named, false, false, isFixed, options);
    }

    /** A lease in nanoseconds, of whole milliseconds. */
    static long checked(Duration lease) {
        return Clock.nanos(LockOptions.defaults().lease(lease).lease());
    }

    /** The same with a lease that is not renewed. */
    public Terms fixed(Duration fixedLease) {
        return new Terms(engine, key, kind, checked(fixedLease), margin, owner, isThread, shares, true, options);
    }

    /** The same with the lease that the server has set for a session. */
    Terms leased(long serverLease) {
        return new Terms(engine, key, kind, serverLease, margin, owner, isThread, shares, isFixed, options);
    }

    /** What the observer is told of, with the number of an acquisition. */
    LockObserver.Subject subject(long id) {
        String kindName = kind.isPermit() ? "semaphore" : mode().name().toLowerCase(Locale.ROOT);
        return new LockObserver.Subject(new String(key, StandardCharsets.UTF_8), kindName, id);
    }

    /** Whether a hold is bound to a connection. */
    public boolean isSession() {
        return options.isSession();
    }

    /** The callback of losses, or null. */
    Consumer<Lost> onLost() {
        return options.onLost().orElse(null);
    }

    public boolean hasNote() {
        return kind.note() != null;
    }

    /** Whether it is a semaphore that an acquisition does not create. */
    boolean mustExist() {
        return kind.isPermit() && kind.limit() == null;
    }

    public Mode mode() {
        return kind.mode();
    }

    /** The lease if it is not renewed, otherwise null. */
    public Duration fixedLease() {
        return isFixed ? Duration.ofNanos(lease) : null;
    }

    /** The claims of an acquisition of all of these, which agree. */
    static List<Claim> claims(List<Terms> terms) {
        Terms first = terms.get(0);
        byte[] name = first.owner != null ? first.owner : first.engine.freshOwner();
        long number = first.owner == null ? 1 : first.isThread ? first.engine.nextNumber() : 0;
        List<Claim> claims = new ArrayList<>(terms.size());
        for (Terms each : terms) {
            claims.add(new Claim(each.key, name, number, each.kind, each.shares));
        }
        return claims;
    }

    /** Whether one request can acquire both. */
    public boolean agreesWith(Terms other) {
        return engine == other.engine
                && lease == other.lease
                && kind.equals(other.kind)
                && isFixed == other.isFixed
                && shares == other.shares
                && options.queue().equals(other.options.queue())
                && options.replicas().equals(other.options.replicas())
                && options.replicasWithin().equals(other.options.replicasWithin())
                && Arrays.equals(owner, other.owner)
                && (!engine.network().isCluster() || SlotHash.getSlot(key) == SlotHash.getSlot(other.key));
    }

    /** How long before the end of a lease a loss is reported. */
    long margin(long ofLease) {
        return margin == null ? ofLease / 6 : Math.min(margin, ofLease / 2);
    }

    /** How long after its request a grant is usable; then its loss is reported. A millisecond is lost to rounding. */
    long reportedAfter(long ofLease) {
        return Math.max(0, ofLease - Clock.MILLI - margin(ofLease));
    }

    /** How long a hold may last without further requests: a session is renewed by the server until it notices the end
     * of the connection. */
    long lastsFor(long ofLease) {
        return isSession() ? Math.max(ofLease, VANISHED) : ofLease;
    }
}
