package redislock.internal.net;

import io.lettuce.core.RedisURI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The known topology and the shared connections. The node that serves a key is learnt from redirections, the primary
 * from the sentinels; both are looked up again when that node cannot be reached. Any thread may call.
 *
 * <p>A wait that cannot connect proves nothing about the shared connections: the server ({@code maxclients}) or this
 * process (descriptors) may only lack room for one more. So a failed wait tries other nodes for itself, and a shared
 * connection is dropped only when it fails itself.
 */
final class Router {
    /** Upper bound of nodes remembered as seeds. */
    private static final int MAX_NODES = 100;

    private final Address address;
    private final Connector connector;
    private final Sentinels sentinels;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Integer, Node> slots = new HashMap<>();
    /** The nodes that redirections have named, used as seeds in addition to those of the address. */
    private final List<Node> nodes = new ArrayList<>();
    private final Map<Node, Shared> shared = new HashMap<>();
    /** With sentinels; null: to be looked up. */
    private InOrder<Node> primary;
    /** The number of the next seed, raised after each failure. */
    private int seed;
    private boolean isClosed;

    Router(Address address, Connector connector, Sentinels sentinels) {
        this.address = address;
        this.connector = connector;
        this.sentinels = sentinels;
    }

    boolean isCluster() {
        return address.kind() == Address.Kind.CLUSTER;
    }

    RedisURI login() {
        return address.login();
    }

    /** How many other nodes a request may try. */
    int otherSeeds() {
        lock.lock();
        try {
            int seeds = address.kind() == Address.Kind.CLUSTER ? address.seeds().size() + nodes.size() : 1;
            return seeds > 1 ? seeds : 0;
        } finally {
            lock.unlock();
        }
    }

    /** The node that serves the slot, as far as known. After {@code failures} of one caller: another one. */
    InOrder<Node> nodeOf(int slot, int failures) {
        InOrder<Node> lookUp = new InOrder<>();
        int first;
        lock.lock();
        try {
            if (address.kind() != Address.Kind.SENTINEL) {
                return InOrder.known(nodeOrSeed(slot, failures));
            }
            if (failures == 0 && primary != null) {
                return primary;
            }
            if (failures == 0) {
                primary = lookUp;
            }
            first = seed + failures;
        } finally {
            lock.unlock();
        }
        sentinels.primary(first).whenComplete((found, failure) -> {
            lookedUp(lookUp, found);
            lookUp.complete(found, failure);
        });
        return lookUp;
    }

    /** Records a primary; {@code found} is null after a failure. */
    private void lookedUp(InOrder<Node> lookUp, Node found) {
        lock.lock();
        try {
            if (found != null && (primary == null || primary.get() != null)) {
                primary = lookUp;
            } else if (found == null && primary == lookUp) {
                primary = null;
            }
        } finally {
            lock.unlock();
        }
    }

    private Node nodeOrSeed(int slot, int failures) {
        Node known = failures == 0 && slot != Slots.NONE ? slots.get(slot) : null;
        return known != null ? known : seedAt(seed + failures);
    }

    private Node seedAt(int number) {
        List<Node> seeds = address.seeds();
        int place = Math.floorMod(number, seeds.size() + nodes.size());
        return place < seeds.size() ? seeds.get(place) : nodes.get(place - seeds.size());
    }

    /** Records that this node serves the slot. */
    void learn(int slot, Node node) {
        lock.lock();
        try {
            if (!nodes.contains(node) && !address.seeds().contains(node) && nodes.size() < MAX_NODES) {
                nodes.add(node);
            }
            slots.put(slot, node);
        } finally {
            lock.unlock();
        }
    }

    /** Forgets the slots of a node that no longer serves them; they are looked up again, at another seed. */
    void reroute(Node node) {
        lock.lock();
        try {
            rerouteLocked(node);
        } finally {
            lock.unlock();
        }
    }

    /** Concurrent calls about one node change the seed once. */
    private void rerouteLocked(Node node) {
        boolean isSeed = seedAt(seed).equals(node);
        boolean isPrimary = primary != null && primary.has(node);
        slots.values().removeIf(node::equals);
        if (isPrimary) {
            primary = null;
        }
        // The next look-up asks another sentinel, as this one may not know of the failure yet.
        if (isSeed || isPrimary) {
            seed++;
        }
    }

    /** The shared connection to this node, which may still be opened. */
    Shared shared(Node node) {
        Shared entry;
        lock.lock();
        try {
            entry = shared.get(node);
            if (entry != null) {
                return entry;
            }
            entry = new Shared(node);
            if (isClosed) {
                entry.opened().complete(null, Errors.noAnswer(node.name()));
                return entry;
            }
            shared.put(node, entry);
        } finally {
            lock.unlock();
        }
        open(entry);
        return entry;
    }

    private void open(Shared entry) {
        connector.open(entry.node(), address.login()).whenComplete((connection, failure) -> {
            if (failure != null) {
                // Removed first: a request that learns of the failure opens the next one.
                forget(entry);
                entry.opened().complete(null, failure);
                return;
            }
            connection.onClosed(() -> forget(entry));
            entry.opened().complete(connection, null);
            if (!isCurrent(entry)) {
                entry.close();
            }
        });
    }

    /** Whether this is still the shared connection to its node. */
    boolean isCurrent(Shared entry) {
        lock.lock();
        try {
            return shared.get(entry.node()) == entry;
        } finally {
            lock.unlock();
        }
    }

    /** Closes a failed shared connection and forgets the slots of its node; nothing if a newer one has replaced it. */
    void forget(Shared entry) {
        boolean isRemoved;
        lock.lock();
        try {
            isRemoved = shared.remove(entry.node(), entry);
            if (isRemoved) {
                rerouteLocked(entry.node());
            }
        } finally {
            lock.unlock();
        }
        if (isRemoved) {
            entry.close();
        }
    }

    /** Opens nothing any more. The open connections are closed with the connector, all at once. */
    void close() {
        lock.lock();
        try {
            isClosed = true;
            shared.clear();
        } finally {
            lock.unlock();
        }
    }
}
