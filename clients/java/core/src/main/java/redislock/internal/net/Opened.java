package redislock.internal.net;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;
import redislock.LockConnectionException;
import redislock.internal.Clock;
import redislock.internal.Loop;

/**
 * A connection that the first use opens, and the next use after its end anew. So what has to be sent again is decided
 * here and not by Lettuce, which repeats all requests on the connections that it opens again itself.
 */
final class Opened<C extends StatefulConnection<byte[], byte[]>> {
    private final Network network;
    private final Supplier<CompletionStage<C>> opener;
    /** Whether it outlives the end of one of its connections: that of a cluster has several. */
    private final boolean isLasting;
    private volatile CompletableFuture<C> present;
    /** Completes when nothing is being opened. */
    private CompletableFuture<Void> rest = CompletableFuture.completedFuture(null);
    private boolean isClosed;

    Opened(Network network, Supplier<CompletionStage<C>> opener, boolean isLasting) {
        this.network = network;
        this.opener = opener;
        this.isLasting = isLasting;
    }

    /** The connection, which may still be opened. */
    CompletableFuture<C> get() {
        if (network.isFoundLeft()) {
            return CompletableFuture.failedFuture(closed());
        }
        CompletableFuture<C> mine;
        CompletableFuture<Void> over;
        synchronized (this) {
            if (isClosed) {
                return CompletableFuture.failedFuture(closed());
            }
            boolean hasEnded = !isLasting && present != null && present.isDone() && !present.join().isOpen();
            if (present != null && !hasEnded) {
                return present;
            }
            present = mine = new CompletableFuture<>();
            rest = over = new CompletableFuture<>();
        }
        Loop.Timer timer = network.loop().after(network.openingPatience(), () -> {
            forget(mine);
            mine.completeExceptionally(Errors.noAnswer(network.server()));
        });
        open(mine, timer, over, Network.STEPS);
        return mine;
    }

    /** Opens it in at most so many attempts. */
    private void open(
            CompletableFuture<C> mine, Loop.Timer timer, CompletableFuture<Void> over, int attempts) {
        long began = Clock.now();
        CompletionStage<C> opening;
        try {
            opening = opener.get();
        } catch (RuntimeException failure) {
            opening = CompletableFuture.failedFuture(failure);
        }
        opening.whenComplete((connection, failure) -> {
            // In a cluster an attempt has a part of the patience: not each of its nodes may answer.
            boolean wasSilent = Clock.now() - began >= network.patience() / Network.STEPS;
            if (failure != null && isLasting && wasSilent && attempts > 1 && !mine.isDone()) {
                open(mine, timer, over, attempts - 1);
                return;
            }
            timer.cancel();
            if (failure != null) {
                forget(mine);
                mine.completeExceptionally(Errors.ofOpening(network.server(), failure));
                over.complete(null);
            } else {
                opened(mine, connection).whenComplete((unused, error) -> over.complete(null));
            }
        });
    }

    private CompletableFuture<Void> opened(CompletableFuture<C> mine, C connection) {
        if (!isLasting) {
            connection.addListener(new RedisConnectionStateListener() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> ended) {
                    drop(connection);
                }
            });
        }
        // Once it is complete, what takes it away ends it.
        boolean isLate = !mine.complete(connection);
        if (isLate || !isLasting && !connection.isOpen()) {
            forget(mine);
            // Lettuce warns of a second end.
            return network.isShut() ? CompletableFuture.completedFuture(null) : network.end(connection);
        }
        return CompletableFuture.completedFuture(null);
    }

    private synchronized boolean forget(CompletableFuture<C> mine) {
        boolean isPresent = present == mine;
        present = isPresent ? null : present;
        return isPresent;
    }

    /** Closes a connection that has failed; the next use opens another one. */
    void drop(C connection) {
        CompletableFuture<C> mine = present;
        if (mine != null && mine.isDone() && !mine.isCompletedExceptionally() && mine.join() == connection
                && forget(mine)) {
            network.end(connection);
        }
    }

    /** Closes it. Nothing is opened any more, and what waits for it is not sent. Completes when it is closed. */
    CompletableFuture<Void> close() {
        CompletableFuture<C> mine;
        CompletableFuture<Void> opening;
        synchronized (this) {
            mine = present;
            opening = rest;
            isClosed = true;
            present = null;
        }
        boolean isOpen = mine != null && !mine.completeExceptionally(closed()) && !mine.isCompletedExceptionally();
        return isOpen ? network.end(mine.join()) : opening;
    }

    private LockConnectionException closed() {
        return new LockConnectionException(network.server(), "the client is closed", null);
    }
}
