package redislock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.lock.Engine;
import redislock.internal.lock.Terms;
import redislock.internal.net.Cmd;
import redislock.internal.net.Errors;
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
     * @throws LockException        when the server cannot be reached at first, or refuses
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
    public CompletableFuture<Optional<Guard>> campaignAsync(String note, @Nullable Duration wait) {
        return Waits.async(terms(note), Clock.end(wait), hold -> hold);
    }

    /**
     * The present leader ({@code LOCK.INFO}, which the user must be allowed to run).
     *
     * @return the leader, or nothing if there is none
     * @throws LockException when the server cannot be reached, or refuses
     */
    public Optional<Leader> leader() {
        return leader(engine.call(info()));
    }

    private Cmd info() {
        return Cmd.of("LOCK.INFO", new Cmd.Key(key));
    }

    private static Optional<Leader> leader(@Nullable Object info) {
        return LockInfo.of(info).holders().stream().findFirst().map(holder -> new Leader(
                holder.note() == null ? "" : holder.note(), holder.token() == null ? 0 : holder.token()));
    }

    /**
     * Tells of each leader: of the present one at first, then of each other one, of none while there is none, also when
     * the same leader says something else. The server is asked every third of the lease, so a shorter leadership may be
     * left out. While it cannot be reached nothing is told, and the observation goes on. What does not pass
     * ({@code NOPERM}, ...) is a warning in the log and the end of the observation.
     *
     * @param observer called on the client's executor, for one change after another
     * @return ends the observation when it is closed; the end of the client does so too
     */
    public AutoCloseable observe(Consumer<Optional<Leader>> observer) {
        return start(new Observation(observer, null));
    }

    /**
     * The same, which tells of failures, too: of each one that is another one than before. The observation goes on
     * after one that may pass, and ends with any other one and with a {@link LockClosedException}.
     *
     * @param observer called on the client's executor, for one change after another
     * @param failed   called likewise with the error of a look at the leader, and at the end of the client
     * @return ends the observation when it is closed
     */
    public AutoCloseable observe(Consumer<Optional<Leader>> observer, Consumer<RuntimeException> failed) {
        return start(new Observation(observer, Objects.requireNonNull(failed, "failed")));
    }

    private Observation start(Observation observation) {
        engine.checkOpen();
        engine.add(observation);
        observation.look();
        return observation;
    }

    private final class Observation implements AutoCloseable, Engine.Pending {
        private final Consumer<Optional<Leader>> observer;
        private final @Nullable Consumer<RuntimeException> failed;
        private @Nullable Optional<Leader> last;
        /** The text of the last failure; empty after a success. */
        private String failure = "";
        private volatile boolean isClosed;

        Observation(Consumer<Optional<Leader>> observer, @Nullable Consumer<RuntimeException> failed) {
            this.observer = Objects.requireNonNull(observer, "observer");
            this.failed = failed;
        }

        void look() {
            Requests.repeatable(engine.network(), info()).whenComplete((info, error) -> {
                if (isClosed) {
                    return;
                }
                Runnable news = error == null ? changed(leader(info)) : failed((RuntimeException) error);
                if (news == null) {
                    lookLater();
                    return;
                }
                tell(() -> {
                    try {
                        news.run();
                    } finally {
                        lookLater();
                    }
                });
            });
        }

        private void tell(Runnable news) {
            engine.complete("the observer of an election has failed", news);
        }

        private @Nullable Runnable changed(Optional<Leader> leader) {
            failure = "";
            if (leader.equals(last)) {
                return null;
            }
            last = leader;
            return () -> observer.accept(leader);
        }

        private @Nullable Runnable failed(RuntimeException error) {
            String text = String.valueOf(error.getMessage());
            boolean isKnown = failure.equals(text);
            failure = text;
            if (!Errors.isPassing(error)) {
                close();
            } else if (isKnown || failed == null) {
                return null;
            }
            if (failed != null) {
                return () -> failed.accept(error);
            }
            engine.network().log().log(System.Logger.Level.WARNING, "the leader of {0} is not known: {1}",
                    new String(key, StandardCharsets.UTF_8), text);
            return null;
        }

        private void lookLater() {
            if (!isClosed) {
                engine.network().loop().after(Clock.nanos(options.lease()) / 3, this::look);
            }
        }

        @Override
        public void close() {
            isClosed = true;
            engine.remove(this);
        }

        @Override
        public void end(RuntimeException why) {
            boolean isNews = failed != null && !isClosed;
            close();
            if (isNews) {
                tell(() -> failed.accept(why));
            }
        }
    }
}
