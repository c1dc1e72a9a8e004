package redislock.internal.net;

import java.util.concurrent.CompletableFuture;

/** The shared connection to a node: the first request opens it, the others wait until it is open. */
final class Shared {
    private final Node node;
    private final CompletableFuture<Connection> opened = new CompletableFuture<>();

    Shared(Node node) {
        this.node = node;
    }

    Node node() {
        return node;
    }

    CompletableFuture<Connection> opened() {
        return opened;
    }

    boolean isOpen() {
        return opened.isDone() && !opened.isCompletedExceptionally() && opened.join().isOpen();
    }

    /** Closes the connection, also when it is opened later. */
    void close() {
        opened.thenAccept(Connection::close);
    }
}
