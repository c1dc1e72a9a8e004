package redislock.internal.net;

import java.util.function.Consumer;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;

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

    /** The node of the connection of a waiting caller; null: it has none. */
    public String nodeName() {
        Connection present = own;
        return present == null ? null : present.node().name();
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
        new Request(command, patience, then).toOwner();
    }

    /** A request in progress. Each redirection begins another {@link Hop}; the last one has the outcome. */
    private final class Request {
        private final Cmd command;
        private final long patience;
        private final Consumer<Result> then;
        private int redirections;

        Request(Cmd command, long patience, Consumer<Result> then) {
            this.command = command;
            this.patience = patience;
            this.then = then;
        }

        /** Sends it to the node that serves the key: on the present connection, otherwise on one to that node. */
        void toOwner() {
            Hop hop = new Hop(this, false);
            Connection present = own;
            if (present != null && (isPinned || present.isOpen())) {
                hop.send(present, null);
            } else if (isPinned) {
                fail(new LockConnectionException(network.name(),
                        "the connection to which the hold was bound has ended", null));
            } else {
                hop.locate(network.router().otherSeeds());
            }
        }

        void redirected(Redirection redirection) {
            if (++redirections >= REDIRECTIONS) {
                fail(new LockConnectionException(network.name(), "sent on from node to node without end", null));
                return;
            }
            keepOwn();
            if (redirection.isAsk()) {
                new Hop(this, true).connect(redirection.target());
            } else {
                network.router().learn(redirection.slot(), redirection.target());
                failures = 0;
                toOwner();
            }
        }

        void fail(LockException error) {
            then.accept(new Result(null, error));
        }
    }

    /**
     * The way of a request to one node, step by step: {@link #locate}, {@link #connect}, {@link #send}, {@link
     * #received}. Each step has the rest of the time, and calls the next one or ends the request.
     */
    private final class Hop {
        private final Request request;
        /** Whether the node is that of an {@code ASK}, which does not own the slot yet. */
        private final boolean isAsking;
        private final long end;

        Hop(Request request, boolean isAsking) {
            this.request = request;
            this.isAsking = isAsking;
            this.end = Clock.plus(Clock.now(), request.patience);
        }

        /** Looks for the node of the key. With other seeds left, one that cannot be reached is no error yet. */
        void locate(int otherSeeds) {
            InOrder<Node> located = network.router().nodeOf(slot, failures);
            Node known = located.get();
            if (known != null) {
                connectOrTryOther(known, otherSeeds);
                return;
            }
            Deadline deadline =
                    new Deadline(network.loop(), end, () -> request.fail(Errors.noAnswer(network.name())));
            located.then((node, failure) -> {
                if (!deadline.isMet()) {
                    return;
                }
                if (failure != null) {
                    request.fail(Errors.ofTransport(network.name(), failure));
                } else {
                    connectOrTryOther(node, otherSeeds);
                }
            });
        }

        /** Connects to the node in half of the time, if other seeds are left for the other half. */
        private void connectOrTryOther(Node node, int otherSeeds) {
            if (otherSeeds == 0) {
                connect(node);
                return;
            }
            long now = Clock.now();
            connect(node, now + (end - now) / 2, error -> {
                if (error.isPassing() && Clock.now() < end) {
                    locate(otherSeeds - 1);
                } else {
                    request.fail(error);
                }
            });
        }

        void connect(Node node) {
            connect(node, end, request::fail);
        }

        private void connect(Node node, long until, Consumer<LockException> onFailure) {
            Shared shared = waits ? null : network.router().shared(node);
            Connection ready = shared == null ? null : shared.ready();
            if (ready != null) {
                send(ready, shared);
                return;
            }
            Deadline deadline = new Deadline(network.loop(), until, () -> {
                countFailure();
                if (!waits) {
                    network.router().reroute(node);
                }
                onFailure.accept(Errors.noAnswer(node.name()));
            });
            (shared != null ? shared.opened() : openOwn(node)).then((connection, failure) -> {
                if (!deadline.isMet()) {
                    // The shared one is kept for others.
                    if (waits && connection != null) {
                        connection.close();
                    }
                } else if (failure != null) {
                    countFailure();
                    onFailure.accept(Errors.ofTransport(node.name(), failure));
                } else {
                    send(connection, shared);
                }
            });
        }

        /** Sends the request; {@code shared} is null for a connection of its own. */
        void send(Connection connection, Shared shared) {
            String server = connection.node().name();
            if (!connection.isOpen()) {
                // Nothing was sent, so this is no unanswered request.
                dropFailed(connection, shared);
                request.fail(new LockConnectionException(server, "the connection failed", null));
                return;
            }
            own = waits ? connection : null;
            // In this order: abandon() may be called at the same time, and is followed by wasUnanswered().
            unanswered = true;
            if (isAbandoned) {
                unanswered = false;
                keepOwn();
                request.fail(new LockConnectionException(server, "the request was given up", null));
                return;
            }
            Deadline deadline = new Deadline(network.loop(), end, () -> {
                dropFailed(connection, shared);
                request.fail(Errors.noAnswer(server));
            });
            connection.send(request.command, isAsking, reply -> {
                if (deadline.isMet()) {
                    received(connection, shared, reply);
                } else if (waits) {
                    connection.close();
                }
            });
        }

        private void received(Connection connection, Shared shared, Connection.Raw reply) {
            String server = connection.node().name();
            if (reply.broken() != null) {
                dropFailed(connection, shared);
                request.fail(Errors.ofTransport(server, reply.broken()));
                return;
            }
            unanswered = false;
            if (isAsking) {
                // Only this request was sent there: the next one begins at the node that has the slot.
                keepOwn();
            }
            if (reply.error() == null) {
                failures = 0;
                answeredBy = shared;
                request.then.accept(new Result(reply.value(), null));
            } else if (slot != Slots.NONE && !isPinned && Redirection.isRedirection(reply.error())) {
                redirected(connection.node(), reply.error());
            } else {
                answeredBy = shared;
                refused(connection, shared, Errors.ofServer(server, reply.error()));
            }
        }

        private void redirected(Node by, String error) {
            Redirection redirection;
            try {
                redirection = Redirection.read(error, by);
            } catch (LockException foreign) {
                request.fail(foreign);
                return;
            }
            request.redirected(redirection);
        }

        private void refused(Connection connection, Shared shared, LockException error) {
            if (error instanceof RefusedException refused && refused.isElsewhere() && !isPinned) {
                // Another node may serve the key: the next request looks for it.
                drop(connection, shared);
                if (waits) {
                    network.router().reroute(connection.node());
                }
            }
            request.fail(error);
        }
    }

    /** A connection for this waiting caller alone: an idle one, or a new one. */
    private InOrder<Connection> openOwn(Node node) {
        Connection idle = network.pool().take(node);
        return idle != null ? InOrder.known(idle)
                : InOrder.from(network.connector().open(node, network.router().login()));
    }

    private void dropFailed(Connection connection, Shared shared) {
        drop(connection, shared);
        countFailure();
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

    /** Returns the connection of a waiting caller to the pool. */
    private void keepOwn() {
        Connection present = own;
        own = null;
        if (present != null) {
            network.pool().put(present);
        }
    }
}
