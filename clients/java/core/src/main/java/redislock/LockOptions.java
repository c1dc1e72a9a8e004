package redislock;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import redislock.internal.Utf8;

/**
 * The options of a lock or a semaphore. Immutable: each method returns changed options. The bounds are checked here,
 * except those that depend on two of the values, which are checked when the lock is made.
 */
public final class LockOptions implements Cloneable {
    private static final Duration LONGEST_LEASE = Duration.ofDays(100 * 365);
    private static final int LONGEST_OWNER = 256;
    private static final int LONGEST_NOTE = 256;

    private static final int MOST_REPLICAS = 100;
    private static final int LONGEST_QUEUE = 1_000_000;
    private static final int MOST_PERMITS = 64;

    private static final LockOptions DEFAULTS = new LockOptions();

    // Changed by `with` alone, before a program has the object.
    private Duration lease = Duration.ofSeconds(30);
    private @Nullable Duration margin;
    private byte @Nullable [] owner;
    private boolean fixed;
    private boolean session;
    private @Nullable Integer limit;
    private byte @Nullable [] note;
    private @Nullable Integer replicas;
    private Duration replicasWithin = Duration.ofMillis(100);
    private @Nullable Integer queue;
    private int count = 1;
    private @Nullable Consumer<Lost> onLost;

    private LockOptions() {
    }

    private LockOptions with(Consumer<LockOptions> change) {
        try {
            LockOptions changed = (LockOptions) clone();
            change.accept(changed);
            return changed;
        } catch (CloneNotSupportedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * The default options: a lease of 30 s that is renewed, a fresh owner for each acquisition.
     *
     * @return the options
     */
    public static LockOptions defaults() {
        return DEFAULTS;
    }

    /**
     * The lease: how long the server keeps the lock without a renewal ({@code PX}). It is renewed every third of that
     * time.
     *
     * @param lease 2 ms to a hundred years; a fraction of a millisecond is cut off
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions lease(Duration lease) {
        Duration checked = checkedLease(lease);
        return with(changed -> changed.lease = checked);
    }

    /**
     * How long before the end of the lease a loss is reported when the server confirms no renewal: the time to stop the
     * work before another owner can get the lock. A sixth of the lease by default.
     *
     * @param margin zero to half of the lease
     * @return changed options
     * @throws IllegalArgumentException when it is negative
     */
    public LockOptions margin(Duration margin) {
        if (Objects.requireNonNull(margin, "margin").isNegative()) {
            throw new IllegalArgumentException("a margin is not negative");
        }
        return with(changed -> changed.margin = margin);
    }

    /**
     * The owner of all acquisitions by guards, instead of a fresh one for each: a name that is unique to one flow of
     * control, to acquire in one process and release in another. It is the credential too: the server cannot
     * distinguish two flows that use the same name, and grants what it holds to it again. Its acquisitions have no
     * numbers, so a request without a reply may be granted late, and then lasts for its lease. The holds of threads
     * always have an owner of their own, see {@link FencedLock}.
     *
     * @param owner 1 to 256 bytes as UTF-8, not beginning with {@code #}; for {@code READ} and {@code WRITE} not
     *              {@code mode}, and not ending in {@code :write}
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions owner(String owner) {
        return owner(Utf8.bytes(owner, "owner"));
    }

    /**
     * The same with any bytes.
     *
     * @param owner see {@link #owner(String)}
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions owner(byte[] owner) {
        Objects.requireNonNull(owner, "owner");
        if (owner.length == 0 || owner.length > LONGEST_OWNER) {
            throw new IllegalArgumentException("an owner has 1 to " + LONGEST_OWNER + " bytes");
        }
        if (owner[0] == '#') {
            throw new IllegalArgumentException("owners that begin with '#' are reserved");
        }
        return with(changed -> changed.owner = owner.clone());
    }

    /**
     * The lease is not renewed in the background: it ends unless {@link Guard#renew(Duration)} extends it. The loss is
     * reported the margin before its end.
     *
     * @return changed options
     */
    public LockOptions fixedLease() {
        return with(changed -> changed.fixed = true);
    }

    /**
     * Each hold by a guard is bound to a connection of its own ({@code SESSION}): the server renews the lease ({@code
     * lock.session-lease}, 10 s) while the connection lives, and releases the lock at once when the connection ends, so
     * also when this program ends for any reason. A broken connection is a loss ({@link LostReason#DISCONNECTED}),
     * while a lease would outlive it. The user needs {@code +lock.info} as well. Not for semaphores and fixed leases,
     * and not for threads: the methods of {@link FencedLock} that bind a hold to the thread throw {@link
     * UnsupportedOperationException}.
     *
     * @return changed options
     */
    public LockOptions session() {
        return with(changed -> changed.session = true);
    }

    /**
     * Of a semaphore: an acquisition creates a missing semaphore with this number of permits. An existing one keeps its
     * number: {@link LockSemaphore#set(int)} changes it.
     *
     * @param permits 1 to 2,147,483,647
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions limit(int permits) {
        if (permits < 1) {
            throw new IllegalArgumentException("a limit is at least one permit");
        }
        return with(changed -> changed.limit = permits);
    }

    /**
     * A text beside the hold, and beside its wait, for people who look ({@code LOCK.INFO}). Of exclusive locks only,
     * and not of a {@link MultiLock}.
     *
     * @param note at most 256 bytes as UTF-8
     * @return changed options
     * @throws IllegalArgumentException when it is longer
     */
    public LockOptions note(String note) {
        return with(changed -> changed.note = checkedNote(note));
    }

    static byte[] checkedNote(String note) {
        byte[] bytes = Utf8.bytes(note, "note");
        if (bytes.length > LONGEST_NOTE) {
            throw new IllegalArgumentException("a note has at most " + LONGEST_NOTE + " bytes");
        }
        return bytes;
    }

    /**
     * Called once for each hold that is lost, before its lease ends, on the client's executor (never on a thread of the
     * transport), and not in order with the stages of {@link Guard#lost()}. An exception is logged, as a warning of the
     * logger {@code redislock}.
     *
     * @param onLost the callback
     * @return changed options
     */
    public LockOptions onLost(Consumer<Lost> onLost) {
        return with(changed -> changed.onLost = Objects.requireNonNull(onLost, "onLost"));
    }

    /**
     * Of a semaphore: an acquisition takes so many permits, all or none. One {@link Permit} is renewed and released for
     * all of them. More than the semaphore has are waited for until {@link LockSemaphore#set(int)} raises its number.
     *
     * @param permits 1 to 64
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions count(int permits) {
        if (permits < 1 || permits > MOST_PERMITS) {
            throw new IllegalArgumentException("a count of permits is 1 to " + MOST_PERMITS);
        }
        return with(changed -> changed.count = permits);
    }

    /**
     * An acquisition that would have to wait is refused at once with {@link QueueFullException}, if so many requests
     * wait for the key already. A grant at once is never refused by it, and a wait keeps its place. After a restart of
     * the server the queue begins anew, so a wait may be refused then.
     *
     * @param requests 0 to 1,000,000
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions queue(int requests) {
        if (requests < 0 || requests > LONGEST_QUEUE) {
            throw new IllegalArgumentException("a queue is for 0 to " + LONGEST_QUEUE + " requests");
        }
        return with(changed -> changed.queue = requests);
    }

    /**
     * A grant counts only when so many replicas have it ({@code WAIT}); otherwise the acquisition throws {@link
     * NotReplicatedException}, and the lock is given back. Each grant costs one more request and the answers of the
     * replicas; renewals and re-entries are not waited for. Not with {@link #session()}. The user needs {@code +wait}.
     *
     * @param number 1 to 100
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions replicas(int number) {
        if (number < 1 || number > MOST_REPLICAS) {
            throw new IllegalArgumentException("a number of replicas is 1 to " + MOST_REPLICAS);
        }
        return with(changed -> changed.replicas = number);
    }

    /**
     * How long the answers of the {@linkplain #replicas(int) replicas} may take. A server asks them at once, so the
     * default of 100 ms is many times what it takes inside of a data centre.
     *
     * @param wait 1 ms to a day
     * @return changed options
     * @throws IllegalArgumentException when it is out of bounds
     */
    public LockOptions replicasWithin(Duration wait) {
        if (wait.compareTo(Duration.ofMillis(1)) < 0 || wait.compareTo(Duration.ofDays(1)) > 0) {
            throw new IllegalArgumentException("replicas have 1 ms to a day");
        }
        return with(changed -> changed.replicasWithin = wait);
    }

    /**
     * The lease.
     *
     * @return whole milliseconds
     */
    public Duration lease() {
        return lease;
    }

    /**
     * The margin.
     *
     * @return the chosen margin, or a sixth of the lease
     */
    public Duration margin() {
        return margin == null ? lease.dividedBy(6) : margin;
    }

    /**
     * The owner that was chosen.
     *
     * @return the owner, or nothing for a fresh one for each acquisition
     */
    public Optional<byte[]> owner() {
        return Optional.ofNullable(owner).map(byte[]::clone);
    }

    /**
     * Whether the lease is not renewed in the background.
     *
     * @return true after {@link #fixedLease()}
     */
    public boolean isFixedLease() {
        return fixed;
    }

    /**
     * Whether a hold is bound to a connection.
     *
     * @return true after {@link #session()}
     */
    public boolean isSession() {
        return session;
    }

    /**
     * The number of permits of a semaphore that an acquisition creates.
     *
     * @return the number, or nothing
     */
    public Optional<Integer> limit() {
        return Optional.ofNullable(limit);
    }

    /**
     * The text beside the hold.
     *
     * @return the text, or nothing
     */
    public Optional<byte[]> note() {
        return Optional.ofNullable(note).map(byte[]::clone);
    }

    /**
     * The number of permits that an acquisition takes.
     *
     * @return 1 by default
     */
    public int count() {
        return count;
    }

    /**
     * The number of waiting requests above which an acquisition does not wait.
     *
     * @return the number, or nothing
     */
    public Optional<Integer> queue() {
        return Optional.ofNullable(queue);
    }

    /**
     * The number of replicas that must have a grant.
     *
     * @return the number, or nothing
     */
    public Optional<Integer> replicas() {
        return Optional.ofNullable(replicas);
    }

    /**
     * How long the answers of the replicas may take.
     *
     * @return 100 ms by default
     */
    public Duration replicasWithin() {
        return replicasWithin;
    }

    /**
     * The callback of losses.
     *
     * @return the callback, or nothing
     */
    public Optional<Consumer<Lost>> onLost() {
        return Optional.ofNullable(onLost);
    }

    /**
     * Checks a lease and cuts it to whole milliseconds: the client must not count on a longer lease than the server's.
     *
     * @param lease 2 ms to a hundred years
     * @return whole milliseconds
     * @throws IllegalArgumentException when it is out of bounds
     */
    static Duration checkedLease(Duration lease) {
        Objects.requireNonNull(lease, "lease");
        if (lease.compareTo(LONGEST_LEASE) > 0) {
            throw new IllegalArgumentException("a lease lasts at most a hundred years");
        }
        if (lease.compareTo(Duration.ofMillis(2)) < 0) {
            throw new IllegalArgumentException("a lease lasts at least two milliseconds");
        }
        return Duration.ofMillis(lease.toMillis());
    }

    /** Shows no owner. */
    @Override
    public String toString() {
        return "LockOptions[lease=" + lease + ", margin=" + margin() + (fixed ? ", fixed" : "")
                + (session ? ", session" : "") + "]";
    }
}
