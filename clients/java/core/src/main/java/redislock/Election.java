package redislock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import redislock.internal.Clock;
import redislock.internal.lock.Blocking;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Leases;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;
import redislock.internal.net.Reply;
import redislock.internal.net.Requests;

/**
 * An election: one of the candidates is the leader, until it resigns, ends, or loses its lease; then the candidate that
 * has waited longest is. The leader is the holder of a lock, and the text beside the hold says where it is.
 *
 * <p>The leadership is a {@link Guard}: {@link Guard#lost()} completes at its loss, {@link Guard#note(String)}
 * proclaims another text, {@link Guard#release()} resigns, and with {@link Guard#execute(Object...)} a former leader
 * changes nothing more.
 */
public final class Election {
    private static final System.Logger LOG = System.getLogger("redislock");

    private final Engine engine;
    private final byte[] key;
    private final LockOptions options;

    Election(Engine engine, byte[] key, LockOptions options) {
        this.engine = engine;
        this.key = Objects.requireNonNull(key, "key").clone();
        this.options = options;
        terms("");
    }

    /**
     * The leader of an election.
     *
     * @param note  what it said of itself: its address, for example; empty if it said nothing
     * @param token the fencing token of its leadership
     */
    public record Leader(String note, long token) {}

    private Terms terms(String note) {
        return Terms.of(engine, key, Mode.EXCLUSIVE, options.note(note));
    }

    /**
     * Becomes the leader; waits until the former ones are none.
     *
     * @param note shown to those who ask for the leader: at most 256 bytes as UTF-8
     * @return the leadership
     * @throws InterruptedException when this thread is interrupted; the candidacy is withdrawn
     * @throws LockException        when the server refuses
     */
    public Guard campaign(String note) throws InterruptedException {
        return Waits.acquireInterruptibly(terms(note), Clock.NEVER);
    }

    /**
     * The same without a thread that waits. The future completes on the client's executor; cancelling it withdraws the
     * candidacy.
     *
     * @param note as above
     * @param wait the longest wait, zero or more; null: no limit
     * @return the leadership, or nothing when another candidate was the leader all that time
     */
    public CompletableFuture<Optional<Guard>> campaignAsync(String note, Duration wait) {
        return Waits.async(terms(note), Leases.end(wait), hold -> hold);
    }

    /**
     * The present leader ({@code LOCK.INFO}, which the user must be allowed to run).
     *
     * @return the leader, or nothing if there is none
     * @throws LockException when the server cannot be reached, or refuses
     */
    public Optional<Leader> leader() {
        engine.checkOpen();
        Blocking.check();
        return leader(Blocking.get(engine.answer(info())));
    }

    private CompletableFuture<Object> info() {
        return Requests.repeatable(engine.network(), Cmd.of("LOCK.INFO", new Cmd.Key(key)));
    }

    private static Optional<Leader> leader(Object info) {
        if (!(Reply.field(info, "holders") instanceof List<?> holders) || holders.isEmpty()) {
            return Optional.empty();
        }
        Object holder = holders.get(0);
        String note = Reply.text(Reply.field(holder, "note"));
        Object token = Reply.field(holder, "token");
        return Optional.of(new Leader(note == null ? "" : note, token instanceof Long number ? number : 0));
    }

    /**
     * Tells of each leader: of the present one at first, then of each other one, of none while there is none, also when
     * the same leader says something else. The server is asked every third of the lease, so a shorter leadership may be
     * left out. While it cannot be reached nothing is told; what does not pass ({@code NOPERM}, ...) is a warning in
     * the log.
     *
     * @param observer called on the client's executor, for one change after another
     * @return ends the observation when it is closed; the end of the client does so too
     */
    public AutoCloseable observe(Consumer<Optional<Leader>> observer) {
        Observation observation = new Observation(Objects.requireNonNull(observer, "observer"));
        engine.checkOpen();
        observation.look();
        return observation;
    }

    private final class Observation implements AutoCloseable {
        private final Consumer<Optional<Leader>> observer;
        private Optional<Leader> last;
        private boolean isRefused;
        private volatile boolean isClosed;

        Observation(Consumer<Optional<Leader>> observer) {
            this.observer = observer;
        }

        void look() {
            info().whenComplete((info, error) -> {
                warn(error);
                Optional<Leader> leader = error == null ? leader(info) : last;
                boolean isNews = !Objects.equals(leader, last);
                last = leader;
                if (isNews && !isClosed) {
                    engine.complete(() -> {
                        try {
                            observer.accept(leader);
                        } finally {
                            lookLater();
                        }
                    });
                } else {
                    lookLater();
                }
            });
        }

        private void warn(Throwable error) {
            boolean wasRefused = isRefused;
            isRefused = error instanceof RefusedException refused && !refused.isPassing();
            if (isRefused && !wasRefused) {
                LOG.log(System.Logger.Level.WARNING, "the leader of {0} is not known: {1}",
                        new String(key, StandardCharsets.UTF_8), error.getMessage());
            }
        }

        private void lookLater() {
            if (!isClosed) {
                engine.network().loop().after(Clock.nanos(options.lease()) / 3, this::look);
            }
        }

        @Override
        public void close() {
            isClosed = true;
        }
    }
}
