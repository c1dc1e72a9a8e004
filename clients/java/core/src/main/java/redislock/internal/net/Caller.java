package redislock.internal.net;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;

/**
 * Sends requests about one key, one after another, to the node that serves the key at the moment. The outcome comes on
 * a thread of Lettuce or on that of the client, and must not block it.
 */
public final class Caller {
    /** Upper bound of redirections of one request. */
    private static final int REDIRECTIONS = 8;

    private final Network network;
    private final int slot;
    /** Whether it has a connection of its own, because its requests wait; the others share one. */
    private final boolean waits;
    /** The connection of a waiting caller. */
    private volatile Connection own;
    /** Nodes in a row that this waiting caller could not reach. */
    private volatile int failures;
    private volatile boolean unanswered;
    /** Of a shared caller: the connection on which the last reply came. */
    private volatile Shared answeredBy;
    private volatile boolean isAbandoned;
    /** Whether all requests must use the present connection. */
    private volatile boolean isPinned;

    private Caller(Network network, byte[] key, boolean waits) {
        this.network = network;
        this.slot = network.isCluster() ? Slots.of(key) : Slots.NONE;
        this.waits = waits;
    }

    /** A caller for requests that are answered at once. */
    public static Caller shared(Network network, byte[] key) {
        return new Caller(network, key, false);
    }

    /** A caller for requests that wait, on a connection of its own: {@link #keepOpen} or {@link #close} it. */
    public static Caller waiting(Network network, byte[] key) {
        return new Caller(network, key, true);
    }

    /**
     * The reply to a request, or why there is none. After a {@link LockConnectionException} it may have been served.
     */
    public record Result(Object value, LockException error) {}

    /** Whether the last request was sent without a reply, and so may have been served. Reading it clears it. */
    public boolean wasUnanswered() {
        boolean was = unanswered;
        unanswered = false;
        return was;
    }

    Shared answeredBy() {
        return answeredBy;
    }

    /** Binds all further requests to the present connection: a hold is bound to it. No redirection is followed. */
    public void pin() {
        isPinned = true;
    }

    /** Whether it is pinned and its connection is open. */
    public boolean isBound() {
        Connection present = own;
        return isPinned && present != null && present.isOpen();
    }

    /** Runs this when the connection of a waiting caller ends, on a thread that must not be blocked. */
    public void onClosed(Runnable action) {
        Connection present = own;
        if (present == null) {
            action.run();
        } else {
            present.onClosed(action);
        }
    }

    /** Returns the connection of a waiting caller to the pool, or closes it if a request is pending on it. */
    public void keepOpen() {
        Connection present = own;
        own = null;
        if (present == null) {
            return;
        }
        if (unanswered || isPinned) {
            present.close();
        } else {
            network.pool().put(present);
        }
    }

    /** Closes the connection of a waiting caller; the server removes its waiter. */
    public void close() {
        Connection present = own;
        own = null;
        if (present != null) {
            present.close();
        }
    }

    /** Sends nothing any more. Read {@link #wasUnanswered} afterwards: a request may have been sent before. */
    public void abandon() {
        isAbandoned = true;
    }

    /** The same as {@link #call}, with the outcome on the client's thread. */
    public void callOnLoop(Cmd command, long patience, Consumer<Result> then) {
        call(command, patience, result -> network.loop().execute(() -> then.accept(result)));
    }

    /** Sends a request once. {@code patience} bounds the attempt at each node of a chain of redirections. */
    public void call(Cmd command, long patience, Consumer<Result> then) {
        unanswered = false;
        answeredBy = null;
        new Attempt(command, patience, then).begin(null);
    }

    /** A request in progress. */
    private final class Attempt {
        private final Cmd command;
        private final long patience;
        private final Consumer<Result> then;
        private int redirections;

        Attempt(Cmd command, long patience, Consumer<Result> then) {
            this.command = command;
            this.patience = patience;
            this.then = then;
        }

        /** Sends it to the node that an {@code ASK} has named, or to the one that serves the key. */
        void begin(Node asked) {
            Hop hop = new Hop(this, Clock.plus(Clock.now(), patience), asked != null);
            if (asked != null) {
                hop.open(asked, hop.end);
                return;
            }
            Connection present = own;
            if (present != null && (isPinned || present.isOpen())) {
                hop.send(present, null);
            } else if (isPinned) {
                hop.fail(new LockConnectionException(network.name(),
                        "the connection to which the hold was bound has ended", null));
            } else {
                hop.locate(network.router().otherSeeds());
            }
        }

        void redirected(Node by, String[] words) {
            if (++redirections >= REDIRECTIONS) {
                then.accept(new Result(null, new LockConnectionException(network.name(),
                        "sent on from node to node without end", null)));
                return;
            }
            Node target;
            int moved;
            try {
                moved = Integer.parseInt(words[1]);
                // An empty host is that of the node that answers.
                Node named = Node.read(words[2].startsWith(":") ? by.host() + words[2] : words[2], 0);
                target = named;
            } catch (IllegalArgumentException foreign) {
                then.accept(new Result(null, Reply.foreign(by.name())));
                return;
            }
            dropOwn();
            if (words[0].equals("ASK")) {
                begin(target);
            } else {
                network.router().learn(moved, target);
                failures = 0;
                begin(null);
            }
        }
    }

    /** An attempt at one node: its connection, its request, and the time for both. It ends once. */
    private final class Hop {
        private final Attempt attempt;
        private final long end;
        private final boolean isAsking;
        private final AtomicBoolean isOver = new AtomicBoolean();
        private volatile Loop.Timer timer;

        Hop(Attempt attempt, long end, boolean isAsking) {
            this.attempt = attempt;
            this.end = end;
            this.isAsking = isAsking;
        }

        private boolean finish() {
            if (!isOver.compareAndSet(false, true)) {
                return false;
            }
            Loop.Timer present = timer;
            if (present != null) {
                present.cancel();
            }
            return true;
        }

        private void within(long until, Runnable onTimeout) {
            timer = network.loop().at(until, onTimeout);
            if (isOver.get()) {
                timer.cancel();
            }
        }

        void fail(LockException error) {
            if (finish()) {
                attempt.then.accept(new Result(null, error));
            }
        }

        /** Looks for the node. One that cannot be reached is an error only when no other seed is left. */
        void locate(int others) {
            CompletableFuture<Node> located = network.router().nodeOf(slot, failures);
            if (located.isDone() && !located.isCompletedExceptionally()) {
                openOr(located.join(), others);
                return;
            }
            Hop looking = new Hop(attempt, end, false);
            looking.within(end, () -> {
                if (looking.finish()) {
                    fail(Errors.noAnswer(network.name()));
                }
            });
            located.whenComplete((node, failure) -> {
                if (!looking.finish()) {
                    return;
                }
                if (failure != null) {
                    fail(Errors.ofTransport(network.name(), unwrapped(failure)));
                } else {
                    openOr(node, others);
                }
            });
        }

        private void openOr(Node node, int others) {
            if (others == 0) {
                open(node, end);
                return;
            }
            long now = Clock.now();
            Hop first = new Hop(new Attempt(attempt.command, attempt.patience, result -> {
                boolean mayTry = result.error() != null && result.error().isPassing() && Clock.now() < end;
                if (mayTry) {
                    locate(others - 1);
                } else {
                    fail(result.error());
                }
            }), now + (end - now) / 2, false);
            first.connect(node, first.end, (connection, shared) -> send(connection, shared));
        }

        void open(Node node, long until) {
            connect(node, until, this::send);
        }

        /** Connects, and goes on with the connection; a failure ends this hop. */
        private void connect(Node node, long until, BiConsumer<Connection, Shared> onOpen) {
            Shared shared = waits ? null : network.router().shared(node);
            Connection pooled = waits ? network.pool().take(node) : null;
            if (shared != null && shared.isOpen()) {
                onOpen.accept(shared.opened().join(), shared);
                return;
            }
            CompletableFuture<Connection> opening = shared != null ? shared.opened()
                    : pooled != null ? CompletableFuture.completedFuture(pooled)
                    : network.connector().open(node, network.router().login());
            Hop connecting = new Hop(attempt, until, isAsking);
            connecting.within(until, () -> {
                if (connecting.finish()) {
                    countFailure();
                    if (!waits) {
                        network.router().reroute(node);
                    }
                    fail(Errors.noAnswer(node.name()));
                }
            });
            opening.whenComplete((connection, failure) -> {
                if (!connecting.finish()) {
                    // Given up; the shared one is kept for others.
                    if (waits && connection != null) {
                        connection.close();
                    }
                } else if (failure != null) {
                    countFailure();
                    fail(Errors.ofTransport(node.name(), unwrapped(failure)));
                } else {
                    onOpen.accept(connection, shared);
                }
            });
        }

        void send(Connection connection, Shared shared) {
            String server = connection.node().name();
            if (!connection.isOpen()) {
                // Nothing was sent, so this is no unanswered request.
                dropFailed(connection, shared);
                fail(new LockConnectionException(server, "the connection failed", null));
                return;
            }
            own = waits ? connection : null;
            unanswered = true;
            if (isAbandoned) {
                unanswered = false;
                giveBack(connection);
                fail(new LockConnectionException(server, "the request was given up", null));
                return;
            }
            within(end, () -> {
                if (finish()) {
                    dropFailed(connection, shared);
                    attempt.then.accept(new Result(null, Errors.noAnswer(server)));
                }
            });
            connection.send(attempt.command, isAsking, raw -> {
                if (finish()) {
                    received(connection, shared, raw);
                } else if (waits) {
                    connection.close();
                }
            });
        }

        private void received(Connection connection, Shared shared, Connection.Raw raw) {
            String server = connection.node().name();
            if (raw.broken() != null) {
                dropFailed(connection, shared);
                attempt.then.accept(new Result(null, Errors.ofTransport(server, raw.broken())));
                return;
            }
            unanswered = false;
            if (isAsking) {
                // Only this request was sent there: the next one begins at the node that has the slot.
                dropOwn();
            }
            if (raw.error() == null) {
                failures = 0;
                answeredBy = shared;
                attempt.then.accept(new Result(raw.value(), null));
                return;
            }
            String[] words = raw.error().split(" ");
            boolean isRedirection = words.length >= 3 && (words[0].equals("MOVED") || words[0].equals("ASK"));
            if (isRedirection && slot != Slots.NONE && !isPinned) {
                attempt.redirected(connection.node(), words);
                return;
            }
            answeredBy = shared;
            LockException error = Errors.ofServer(server, raw.error());
            if (error instanceof RefusedException refused && refused.isElsewhere() && !isPinned) {
                // Another node may serve the key: the next request looks for it.
                drop(connection, shared);
                if (waits) {
                    network.router().reroute(connection.node());
                }
            }
            attempt.then.accept(new Result(null, error));
        }

        private void giveBack(Connection connection) {
            if (waits) {
                own = null;
                network.pool().put(connection);
            }
        }

        private void dropFailed(Connection connection, Shared shared) {
            drop(connection, shared);
            countFailure();
        }
    }

    /**
     * A waiting caller counts its own failures. For the others, the failure of the shared one has changed the route.
     */
    private void countFailure() {
        if (waits) {
            failures++;
        }
    }

    /** Drops the connection and the pooled ones of the same node. */
    private void drop(Connection connection, Shared shared) {
        own = null;
        if (shared != null) {
            network.router().forget(shared);
            connection.close();
        } else {
            connection.close();
            network.pool().close(connection.node());
        }
    }

    private void dropOwn() {
        Connection present = own;
        own = null;
        if (present != null) {
            network.pool().put(present);
        }
    }

    private static Throwable unwrapped(Throwable failure) {
        return failure instanceof CompletionException && failure.getCause() != null ? failure.getCause() : failure;
    }
}
