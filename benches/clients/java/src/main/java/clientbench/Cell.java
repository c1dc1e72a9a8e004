package clientbench;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** Contenders of one way on one lock, spread over client objects. */
final class Cell {
  static final String LOCK = "lock:clients";
  private static final long STOPS_WITHIN_MS = 60_000;

  private final List<Locks> clients = new ArrayList<>();
  private final List<Contender> contenders = new ArrayList<>();
  private LongStream open = LongStream.empty();
  private volatile boolean measuring;
  private volatile boolean stopped;
  private volatile String failure;

  Cell(Way way, int port, int contenders, int clients, int pauseMs, Path file) throws IOException {
    Guarded guarded = new Guarded(file);
    int each = (contenders + clients - 1) / clients;
    for (int client = 0; client < clients; client++) {
      this.clients.add(way.connect(port, each));
    }
    for (int number = 0; number < contenders; number++) {
      Locks locks = this.clients.get(number % clients);
      this.contenders.add(new Contender(this, number, locks.lock(LOCK), guarded, pauseMs));
    }
    connect();
  }

  /** Each client object opens its connection with a pair on another lock. */
  private void connect() {
    for (Locks client : clients) {
      Locks.Lock lock = client.lock(LOCK + ":connect");
      lock.lock();
      lock.unlock();
    }
  }

  void start() {
    contenders.forEach(Thread::start);
  }

  void measure() {
    measuring = true;
  }

  /** Ends the measured time. The waits that are still open count with their age. */
  void pause() {
    measuring = false;
    long now = System.nanoTime();
    open = LongStream.of(contenders.stream().mapToLong(each -> each.open(now)).filter(age -> age > 0).toArray());
  }

  boolean measuring() {
    return measuring;
  }

  boolean stopped() {
    return stopped;
  }

  void fail(Throwable error) {
    if (failure == null) {
      error.printStackTrace();
      failure = error.toString();
    }
    stopped = true;
  }

  /** Ends the contenders, and returns their figures as JSON. */
  String figures() throws InterruptedException {
    stopped = true;
    long until = System.currentTimeMillis() + STOPS_WITHIN_MS;
    for (Contender contender : contenders) {
      contender.join(Math.max(1, until - System.currentTimeMillis()));
      if (contender.isAlive()) {
        fail(new IllegalStateException(contender.getName() + " does not end"));
      }
    }
    clients.forEach(Locks::close);
    return "{\"waits\": [%s], \"grants\": [%s], \"open\": [%s], \"pairs\": %d, \"failure\": %s}"
        .formatted(
            joined(contenders.stream().flatMapToLong(Contender::waits)),
            joined(contenders.stream().mapToLong(Contender::granted)),
            joined(open),
            contenders.stream().mapToLong(Contender::pairs).sum(),
            failure == null ? "null" : quoted(failure));
  }

  private static String joined(LongStream values) {
    return values.mapToObj(Long::toString).collect(Collectors.joining(", "));
  }

  static String quoted(String text) {
    return '"' + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + '"';
  }
}
