package clientbench;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import redislock.FencedLock;
import redislock.Guard;
import redislock.LockClient;

/** Many waits of one process for one lock, without threads of their own. */
final class Waiting {
  private static final long GRANTED_WITHIN_S = 120;

  private final LockClient client;
  private List<CompletableFuture<?>> waits = List.of();

  /** Makes a pair, so that the process has loaded what it needs. */
  Waiting(int port) throws InterruptedException {
    client = LockClient.create("redis://" + Connections.HOST + ":" + port);
    client.lock(Cell.LOCK + ":open").acquire().release();
  }

  void begin(int count) {
    FencedLock lock = client.lock(Cell.LOCK);
    waits = IntStream.range(0, count).<CompletableFuture<?>>mapToObj(number -> waitFor(lock)).toList();
  }

  private static CompletableFuture<?> waitFor(FencedLock lock) {
    return lock.acquireAsync(null).thenCompose(guard -> guard.map(Guard::releaseAsync).orElseThrow());
  }

  /** Bytes of the heap that are in use after a collection. */
  static long heap() {
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }

  /** Waits until each wait was granted and released; the answer is JSON. */
  String finish() throws InterruptedException {
    String failure = "null";
    try {
      CompletableFuture.allOf(waits.toArray(CompletableFuture[]::new)).get(GRANTED_WITHIN_S, TimeUnit.SECONDS);
    } catch (ExecutionException | TimeoutException error) {
      failure = Cell.quoted(error.toString());
    }
    long granted = waits.stream().filter(wait -> wait.isDone() && !wait.isCompletedExceptionally()).count();
    client.close();
    return "{\"granted\": %d, \"failure\": %s}".formatted(granted, failure);
  }
}
