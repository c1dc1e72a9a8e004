package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import redislock.LockConnectionException;

/**
 * A connection that the first use opens, and the next use after its end anew. So what has to be sent again is decided
 * here and not by Lettuce, which repeats all requests on the connections that it opens again itself.
 */
final class Opened<C extends StatefulConnection<byte[], byte[]>> {
    private final String server;
    private final Supplier<CompletionStage<C>> opener;
    /** Whether it outlives the end of one of its connections: that of a cluster has several. */
    private final boolean isLasting;
    private final ReentrantLock lock = new ReentrantLock();
    private CompletableFuture<C> present;
    private boolean isClosed;

    Opened(String server, Supplier<CompletionStage<C>> opener, boolean isLasting) {
        this.server = server;
        this.opener = opener;
        this.isLasting = isLasting;
    }

    /** The connection, which may still be opened. */
    CompletableFuture<C> get() {
        CompletableFuture<C> mine = new CompletableFuture<>();
        lock.lock();
        try {
            if (isClosed) {
                return CompletableFuture.failedFuture(new LockConnectionException(server, "the client is closed", null));
            }
            boolean hasEnded = !isLasting && present != null && present.isDone() && !present.join().isOpen();
            if (present != null && !hasEnded) {
                return present;
            }
            present = mine;
        } finally {
            lock.unlock();
        }
        CompletionStage<C> opening;
        try {
            opening = opener.get();
        } catch (RuntimeException failure) {
            opening = CompletableFuture.failedFuture(failure);
        }
        opening.whenComplete((connection, failure) -> {
            if (failure != null) {
                forget(mine);
                mine.completeExceptionally(Errors.ofOpening(server, failure));
            } else {
                opened(mine, connection);
            }
        });
        return mine;
    }

    private void opened(CompletableFuture<C> mine, C connection) {
        if (!isLasting) {
            connection.addListener(new RedisConnectionStateListener() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                    drop(connection);
                }
            });
        }
        mine.complete(connection);
        lock.lock();
        boolean isUnwanted = present != mine;
        lock.unlock();
        if (isUnwanted || !isLasting && !connection.isOpen()) {
            forget(mine);
            connection.closeAsync();
        }
    }

    private boolean forget(CompletableFuture<C> mine) {
        lock.lock();
        try {
            boolean isPresent = present == mine;
            present = isPresent ? null : present;
            return isPresent;
        } finally {
            lock.unlock();
        }
    }

    /** Closes a connection that has failed; the next use opens another one. */
    void drop(C connection) {
        lock.lock();
        CompletableFuture<C> mine = present;
        lock.unlock();
        if (mine != null && mine.isDone() && !mine.isCompletedExceptionally() && mine.join() == connection
                && forget(mine)) {
            connection.closeAsync();
        }
    }

    /** Closes it; nothing is opened any more. */
    void close() {
        lock.lock();
        CompletableFuture<C> mine = present;
        isClosed = true;
        present = null;
        lock.unlock();
        if (mine != null && mine.isDone() && !mine.isCompletedExceptionally()) {
            mine.join().closeAsync();
        }
    }
}
