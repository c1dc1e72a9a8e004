package redislock.internal.net;

/** The shared connection to a node: the first request opens it, the others wait until it is open, and are sent in the
 * order in which they came. */
final class Shared {
    private final Node node;
    private final InOrder<Connection> opened = new InOrder<>();

    Shared(Node node) {
        this.node = node;
    }

    Node node() {
        return node;
    }

    InOrder<Connection> opened() {
        return opened;
    }

    /** The connection if it is open and no request waits for it, otherwise null. */
    Connection ready() {
        Connection connection = opened.get();
        return connection != null && connection.isOpen() ? connection : null;
    }

    /** Whether the connection is open. */
    boolean isOpen() {
        return ready() != null;
    }

    /** Closes the connection, also when it is opened later. */
    void close() {
        opened.then((connection, failure) -> {
            if (connection != null) {
                connection.close();
            }
        });
    }
}
