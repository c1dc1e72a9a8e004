package redislock.internal.net;

import redislock.internal.Counts;
import redislock.internal.Loop;

/**
 * What the requests of a client share: the connections, the routes and the thread. Opening it sends nothing. Requests
 * that are answered at once share one connection to each node, also those of tickets; a parked request gets a
 * connection of its own, because it would block all later requests on a shared one.
 */
public final class Network {
    private final Address address;
    private final Connector connector;
    private final Loop loop;
    private final Counts counts;
    private final Router router;
    private final Pool pool;
    private final Desk desk;
    private final boolean parks;

    public Network(Address address, Connector connector, Loop loop, Counts counts, boolean parks) {
        this.address = address;
        this.connector = connector;
        this.loop = loop;
        this.counts = counts;
        this.parks = parks;
        this.router = new Router(address, connector, new Sentinels(address, connector, loop));
        this.pool = new Pool(loop);
        this.desk = new Desk(this);
    }

    public String name() {
        return address.name();
    }

    public Loop loop() {
        return loop;
    }

    public Counts counts() {
        return counts;
    }

    /** The response timeout in nanoseconds. */
    public long patience() {
        return connector.patience();
    }

    /** Until when an acquisition may last in spite of its own bound; zero: its bound counts. */
    public long coldUntil() {
        return connector.coldUntil(address.login());
    }

    public boolean isCluster() {
        return address.kind() == Address.Kind.CLUSTER;
    }

    /** Whether the address names one server, without a cluster or sentinels. */
    public boolean isSingle() {
        return address.kind() == Address.Kind.SERVER;
    }

    /** Where waits file tickets; null where they park. */
    public Desk desk() {
        return parks ? null : desk;
    }

    Router router() {
        return router;
    }

    Connector connector() {
        return connector;
    }

    Pool pool() {
        return pool;
    }

    /** Closes every connection. Requests under way fail. */
    public void close() {
        router.close();
        pool.close();
        connector.close();
    }
}
