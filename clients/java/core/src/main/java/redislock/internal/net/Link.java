package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.protocol.Command;
import io.netty.buffer.ByteBuf;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import redislock.LockException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;

/**
 * The connection of the requests of a client, or of one hold with a session. Requests are sent in the order of the
 * calls, also while it is opened.
 */
public final class Link {
    private final Network network;
    private final Loop loop;
    private final Opened<StatefulConnection<byte[], byte[]>> opened;
    /** Whether the hold of a session depends on it: it is neither given up for another server nor opened again. */
    private final boolean isPinned;
    private final ReentrantLock lock = new ReentrantLock();
    /** The requests that wait until it is open. Changed with the lock. */
    private final Deque<Request> waiting = new ArrayDeque<>();
    private boolean isDraining;
    /** The requests in flight that must not be sent twice. */
    private final Set<Request> once = ConcurrentHashMap.newKeySet();
    private volatile long lastReply;
    /** When a request last had no reply. */
    private volatile long silentSince;

    Link(Network network, Opened<StatefulConnection<byte[], byte[]>> opened, boolean isPinned) {
        this.network = network;
        this.loop = network.loop();
        this.opened = opened;
        this.isPinned = isPinned;
    }

    /**
     * The reply to a request, or why there is none.
     *
     * @param isUnanswered whether it was sent, and may be served, although there is no reply
     */
    public record Result(Object value, LockException error, boolean isUnanswered) {}

    /** Sends a request. The outcome comes on a thread of Lettuce or of the client, which must not be blocked. */
    public Request call(Cmd command, long patience, Consumer<Result> then) {
        return call(command, patience, patience, then);
    }

    /**
     * The same. From the moment that it is sent the request has {@code patience} as long as the connection is silent,
     * and {@code longest} while others get replies on it: then only this process or the server is busy.
     */
    public Request call(Cmd command, long patience, long longest, Consumer<Result> then) {
        return send(new Request(command, patience, longest, false, false, then));
    }

    /** The same, with the outcome on the client's thread. */
    public Request callOnLoop(Cmd command, long patience, Consumer<Result> then) {
        return call(command, patience, result -> loop.execute(() -> then.accept(result)));
    }

    /** Sends a request that must not be served twice: it is not repeated when a connection ends. */
    public void callOnce(Cmd command, long patience, Consumer<Result> then) {
        send(new Request(command, patience, patience, true, false, result -> loop.execute(() -> then.accept(result))));
    }

    private Request send(Request request) {
        CompletableFuture<StatefulConnection<byte[], byte[]>> connection = null;
        boolean isFirst = false;
        lock.lock();
        try {
            if (waiting.isEmpty() && !isDraining) {
                connection = opened.get();
            }
            if (connection == null || !connection.isDone()) {
                isFirst = waiting.isEmpty() && !isDraining;
                waiting.add(request);
                isDraining |= isFirst;
            }
        } finally {
            lock.unlock();
        }
        if (isFirst) {
            connection.whenComplete(this::drain);
        } else if (connection != null && connection.isDone()) {
            if (connection.isCompletedExceptionally()) {
                connection.whenComplete((unused, failure) -> request.fail(failure, false));
            } else {
                request.dispatch(connection.join());
            }
        }
        return request;
    }

    private void drain(StatefulConnection<byte[], byte[]> connection, Throwable failure) {
        while (true) {
            Request next;
            lock.lock();
            try {
                next = waiting.poll();
                isDraining = next != null;
            } finally {
                lock.unlock();
            }
            if (next == null) {
                return;
            }
            if (failure != null) {
                next.fail(failure, false);
            } else {
                next.dispatch(connection);
            }
        }
    }

    /** A connection of the cluster has ended, on which Lettuce sends the open requests again. */
    void disconnected() {
        once.forEach(request -> request.fail(new CancellationException("the connection has ended"), true));
    }

    /** Runs this when the connection of a session ends. */
    public void onEnded(Runnable action) {
        CompletableFuture<StatefulConnection<byte[], byte[]>> present = opened.get();
        if (!present.isDone() || present.isCompletedExceptionally()) {
            action.run();
            return;
        }
        StatefulConnection<byte[], byte[]> connection = present.join();
        connection.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                action.run();
            }
        });
        if (!connection.isOpen()) {
            action.run();
        }
    }

    /** Closes the connection. Requests under way fail. Completes when it is closed. */
    public CompletableFuture<Void> close() {
        network.forget(this);
        return opened.close();
    }

    /** A request as Lettuce's command. Its outcome is received once. */
    public final class Request extends Command<byte[], byte[], Object> {
        private final Cmd cmd;
        private final long patience;
        private final long longest;
        private final boolean isOnce;
        private final boolean isAgain;
        private final Consumer<Result> then;
        private final AtomicBoolean isReceived = new AtomicBoolean();
        private volatile Loop.Timer timer;
        private boolean isExtended;
        private volatile StatefulConnection<byte[], byte[]> connection;
        private volatile long sent;
        /** When it was written to the connection of its node, which Lettuce may have opened for it; zero: not yet. */
        private volatile long written;
        /** The thread that passes it to Lettuce: a failure there means that nothing was sent. */
        private volatile Thread sender;

        private Request(
                Cmd cmd, long patience, long longest, boolean isOnce, boolean isAgain, Consumer<Result> then) {
            super(cmd, new ReplyOutput(), cmd.encoded());
            this.cmd = cmd;
            this.patience = patience;
            this.longest = longest;
            this.isOnce = isOnce;
            this.isAgain = isAgain;
            this.then = then;
        }

        private void dispatch(StatefulConnection<byte[], byte[]> to) {
            if (isReceived.get()) {
                return;
            }
            connection = to;
            sent = Clock.now();
            timer = loop.after(patience, this::late);
            if (isOnce) {
                once.add(this);
            }
            sender = Thread.currentThread();
            try {
                to.dispatch(this);
            } catch (RuntimeException refused) {
                fail(refused, false);
            }
            sender = null;
        }

        /** Whether it was sent, or will be. */
        public boolean wasSent() {
            return sent != 0;
        }

        /** Sends it no more, if that is possible. There is no outcome. */
        public void abandon() {
            if (receive()) {
                cancel();
            }
        }

        @Override
        public void encode(ByteBuf buffer) {
            written = Clock.now();
            super.encode(buffer);
        }

        private void late() {
            if (network.isCold()) {
                // Until it is written the process loads classes.
                long due = written == 0 ? sent + network.openingPatience() : written + patience;
                if (Clock.now() < due) {
                    timer = loop.at(due, this::late);
                    return;
                }
            }
            StatefulConnection<byte[], byte[]> silent = connection;
            boolean isSilent = lastReply < sent;
            if (!isSilent && longest > patience && !isExtended && !isReceived.get()) {
                isExtended = true;
                timer = loop.after(longest - patience, this::late);
                return;
            }
            if (!receive()) {
                return;
            }
            // One that answers other requests is kept. In a cluster those to the other nodes would be closed with it,
            // so the next request is awaited too.
            boolean isNext = silentSince > lastReply && silentSince < sent;
            if (isSilent && (!network.isCluster() || isPinned || isNext)) {
                opened.drop(silent);
            }
            silentSince = isSilent ? Clock.now() : silentSince;
            network.refresh();
            cancel();
            then.accept(new Result(null, Errors.noAnswer(network.server()), true));
        }

        private boolean receive() {
            boolean isFirst = isReceived.compareAndSet(false, true);
            if (isFirst) {
                Loop.Timer set = timer;
                if (set != null) {
                    set.cancel();
                }
                once.remove(this);
            }
            return isFirst;
        }

        private void fail(Throwable failure, boolean wasSent) {
            if (receive()) {
                cancel();
                then.accept(new Result(null, Errors.ofTransport(network.server(), failure), wasSent));
            }
        }

        @Override
        public void complete() {
            super.complete();
            lastReply = Clock.now();
            network.answered();
            if (!receive()) {
                return;
            }
            if (output.getError() == null) {
                then.accept(new Result(output.get(), null, false));
                return;
            }
            LockException error = Errors.ofServer(network.server(), output.getError());
            if (error instanceof RefusedException refused && refused.isElsewhere() && !isPinned) {
                // Another server may serve the key: the next request looks for it.
                network.refresh();
                if (!network.isCluster()) {
                    opened.drop(connection);
                }
            }
            then.accept(new Result(null, error, false));
        }

        @Override
        public boolean completeExceptionally(Throwable cause) {
            boolean isFirst = super.completeExceptionally(cause);
            broken(cause);
            return isFirst;
        }

        @Override
        public void cancel() {
            super.cancel();
            broken(new CancellationException("the connection was closed"));
        }

        private void broken(Throwable cause) {
            if (!receive()) {
                return;
            }
            boolean wasSent = sender != Thread.currentThread();
            if (!wasSent && !isPinned && !isAgain) {
                // The connection had ended before: nothing was sent, and the request goes to the next one.
                opened.drop(connection);
                send(new Request(cmd, patience, longest, isOnce, true, then));
                return;
            }
            then.accept(new Result(null, Errors.ofTransport(network.server(), cause), wasSent));
        }
    }
}
