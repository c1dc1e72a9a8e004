package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A connection to a node for requests, in the order in which they are sent. It is not opened again when it has ended.
 */
final class Connection {
    /** The reply to a request: a value, an error of the server, or the end of the connection. */
    record Raw(Object value, String error, Throwable broken) {}

    /** Receives the reply, on a thread of Lettuce, which must not be blocked; or in the calling thread. */
    interface Receiver {
        void receive(Raw raw);
    }

    private static final Receiver UNREAD = raw -> {};

    private final Node node;
    private final StatefulRedisConnection<byte[], byte[]> link;
    /** Keeps ASKING and its request together. */
    private final ReentrantLock order = new ReentrantLock();
    private final AtomicBoolean isOpen = new AtomicBoolean(true);
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private final List<Runnable> onClosed = new CopyOnWriteArrayList<>();

    Connection(Node node, StatefulRedisConnection<byte[], byte[]> link) {
        this.node = node;
        this.link = link;
        link.addListener(new RedisConnectionStateListener() {
            @Override
            public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
                ended();
            }
        });
        if (!link.isOpen()) {
            ended();
        }
    }

    Node node() {
        return node;
    }

    boolean isOpen() {
        return isOpen.get();
    }

    /** Runs this when the connection ends, or at once when it has ended; on a thread that must not be blocked. */
    void onClosed(Runnable action) {
        onClosed.add(action);
        if (!isOpen() && onClosed.remove(action)) {
            action.run();
        }
    }

    /** Sends a request, preceded by {@code ASKING} where the node does not own the slot yet. */
    void send(Cmd command, boolean isAsking, Receiver receiver) {
        order.lock();
        try {
            if (isAsking) {
                link.dispatch(new Request(Cmd.of("ASKING"), UNREAD));
            }
            link.dispatch(new Request(command, receiver));
        } finally {
            order.unlock();
        }
    }

    void close() {
        ended();
        // The end of the client may have closed it; Lettuce warns of a second time.
        boolean wasClosed = link instanceof RedisChannelHandler<?, ?> handler && handler.isClosed();
        if (isClosed.compareAndSet(false, true) && !wasClosed) {
            link.closeAsync();
        }
    }

    private void ended() {
        isOpen.set(false);
        for (Runnable action : onClosed) {
            if (onClosed.remove(action)) {
                action.run();
            }
        }
    }

    /** A request as Lettuce's command. Its outcome is received once. */
    private static final class Request extends Command<byte[], byte[], Object> {
        private final AtomicBoolean isReceived = new AtomicBoolean();
        private final Receiver receiver;

        Request(Cmd command, Receiver receiver) {
            super(command.word(), new ReplyOutput(), arguments(command));
            this.receiver = receiver;
        }

        private static CommandArgs<byte[], byte[]> arguments(Cmd command) {
            CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
            for (byte[] argument : command.arguments()) {
                arguments.add(argument);
            }
            return arguments;
        }

        @Override
        public void complete() {
            super.complete();
            receive(new Raw(output.get(), output.getError(), null));
        }

        @Override
        public boolean completeExceptionally(Throwable cause) {
            super.completeExceptionally(cause);
            receive(new Raw(null, null, cause));
            return true;
        }

        @Override
        public void cancel() {
            super.cancel();
            receive(new Raw(null, null, new CancellationException("the connection was closed")));
        }

        private void receive(Raw raw) {
            if (isReceived.compareAndSet(false, true)) {
                receiver.receive(raw);
            }
        }
    }
}
