package redislock.internal.net;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import redislock.internal.Clock;
import redislock.internal.Loop;

/**
 * Idle connections of finished parked waits, for the next ones. Under contention nearly every acquisition waits, and a
 * new connection for each would use up the local ports: a closed connection blocks its port for a minute.
 */
final class Pool {
    /** Upper bound of idle connections to one node. */
    private static final int MAX_PER_NODE = 64;
    /** Time after which an idle connection is closed. */
    private static final long MAX_IDLE = 30_000 * Clock.MILLI;

    private record Idle(long since, Connection connection) {}

    private final Loop loop;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Node, Deque<Idle>> nodes = new HashMap<>();
    private boolean isSwept;
    private boolean isClosed;

    Pool(Loop loop) {
        this.loop = loop;
    }

    /** The most recently used idle connection to this node, or null. */
    Connection take(Node node) {
        lock.lock();
        try {
            Deque<Idle> idle = nodes.get(node);
            while (idle != null && !idle.isEmpty()) {
                Connection connection = idle.pollLast().connection();
                if (connection.isOpen()) {
                    return connection;
                }
            }
            return null;
        } finally {
            lock.unlock();
        }
    }

    /** Adds a connection without pending requests, or closes it when the pool is full. */
    void put(Connection connection) {
        boolean isKept;
        lock.lock();
        try {
            Deque<Idle> idle = nodes.computeIfAbsent(connection.node(), node -> new ArrayDeque<>());
            isKept = !isClosed && connection.isOpen() && idle.size() < MAX_PER_NODE;
            if (isKept) {
                idle.add(new Idle(Clock.now(), connection));
                sweepLater();
            }
        } finally {
            lock.unlock();
        }
        if (!isKept) {
            connection.close();
        }
    }

    private void sweepLater() {
        if (!isSwept) {
            isSwept = true;
            loop.after(MAX_IDLE / 4, this::sweep);
        }
    }

    private void sweep() {
        List<Idle> old = new ArrayList<>();
        lock.lock();
        try {
            isSwept = false;
            long now = Clock.now();
            for (Deque<Idle> idle : nodes.values()) {
                while (!idle.isEmpty() && now - idle.peekFirst().since() >= MAX_IDLE) {
                    old.add(idle.pollFirst());
                }
            }
            nodes.values().removeIf(Deque::isEmpty);
            if (!nodes.isEmpty()) {
                sweepLater();
            }
        } finally {
            lock.unlock();
        }
        old.forEach(idle -> idle.connection().close());
    }

    /** Closes all connections to a node, because the node has closed one of them. */
    void close(Node node) {
        Deque<Idle> idle;
        lock.lock();
        try {
            idle = nodes.remove(node);
        } finally {
            lock.unlock();
        }
        if (idle != null) {
            idle.forEach(each -> each.connection().close());
        }
    }

    /** Keeps nothing any more. The open connections are closed with the connector, all at once. */
    void close() {
        lock.lock();
        try {
            isClosed = true;
            nodes.clear();
        } finally {
            lock.unlock();
        }
    }
}
