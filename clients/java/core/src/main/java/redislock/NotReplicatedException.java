package redislock;

import java.time.Duration;

/** Fewer replicas than {@link LockOptions#replicas(int)} had the grant in time. It was given back. */
public class NotReplicatedException extends LockException {
    private static final long serialVersionUID = 1;

    /** The number of replicas that were to have it. */
    private final int wanted;
    /** The number of replicas that had it. */
    private final int had;

    /**
     * A grant that too few replicas have.
     *
     * @param server the server's name, {@code host:port}
     * @param wanted the number of replicas that were to have it
     * @param had    the number of replicas that had it
     * @param within how long it was waited for
     */
    public NotReplicatedException(String server, int wanted, int had, Duration within) {
        super(server, had + " of " + wanted + " replicas have the grant within " + within.toMillis() + " ms", null);
        this.wanted = wanted;
        this.had = had;
    }

    /**
     * The number of replicas that were to have the grant.
     *
     * @return that of {@link LockOptions#replicas(int)}
     */
    public int wanted() {
        return wanted;
    }

    /**
     * The number of replicas that had the grant in time.
     *
     * @return fewer than {@link #wanted()}
     */
    public int had() {
        return had;
    }
}
