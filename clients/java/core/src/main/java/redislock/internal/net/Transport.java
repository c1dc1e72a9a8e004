package redislock.internal.net;

import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What a client of Lettuce opens: connections for requests, and one for messages at each node. */
public abstract class Transport {
    private static final long END_SECONDS = 2;

    private final String name;
    private final String server;
    private final boolean isForeign;

    /** {@code address} is null where the client is the program's. */
    Transport(Address address, String nameless) {
        this.name = address == null ? nameless : address.name();
        this.server = address == null ? nameless : address.server();
        this.isForeign = address == null;
    }

    /** Whether the client of Lettuce is that of the program, which stays open. */
    boolean isForeign() {
        return isForeign;
    }

    /** The address without credentials. */
    public String name() {
        return name;
    }

    /** The server in messages of errors. */
    String server() {
        return server;
    }

    abstract boolean isCluster();

    /** Whether there is no other server to ask: no cluster, no sentinels. */
    abstract boolean isSingle();

    /** Opens a connection for the requests of all keys. */
    abstract CompletionStage<StatefulConnection<byte[], byte[]>> connect();

    /** Opens a connection of its own to the node of this slot. */
    abstract CompletionStage<StatefulConnection<byte[], byte[]>> connectAlone(int slot);

    /** The connection for messages at the node of this slot. */
    abstract CompletionStage<StatefulRedisPubSubConnection<byte[], byte[]>> subscriber(int slot);

    /** A connection for messages has failed: the next use opens another one. */
    abstract void dropSubscriber(StatefulRedisPubSubConnection<byte[], byte[]> connection);

    /** Looks for changes of the cluster: a node does not answer, or does not serve a slot. */
    abstract void refresh();

    /** Runs this when a connection ends on which Lettuce repeats the open requests. */
    abstract void onDisconnected(Runnable action);

    /** Closes what this client has opened. */
    abstract void close();

    /** Ends the threads of the client's own resources; null: those of the program stay. */
    static void end(ClientResources own) {
        if (own != null) {
            Future<Boolean> end = own.shutdown(0, END_SECONDS, TimeUnit.SECONDS);
            ((io.netty.util.concurrent.Future<?>) end).awaitUninterruptibly(END_SECONDS, TimeUnit.SECONDS);
        }
    }
}
