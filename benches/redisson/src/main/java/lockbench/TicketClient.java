package lockbench;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Locks for all threads of a process over two connections of Lettuce: one for commands, one that is
 * subscribed to the channel of this process. A request that must wait is a ticket: the server
 * answers QUEUED, and the outcome is a message with the tag of the request (docs/COMMANDS.md,
 * "Waiting without a connection"). Lettuce connects, subscribes and sends unanswered commands again
 * by itself; ONCE makes that safe. Times are in milliseconds.
 */
final class TicketClient implements AutoCloseable {
  private static final Long DONE = 1L;
  private static final StringCodec TEXT = StringCodec.UTF8;

  private final StatefulRedisConnection<String, String> commands;
  private final StatefulRedisPubSubConnection<String, String> messages;
  private final String channel = "tickets:" + UUID.randomUUID();
  private final boolean confirms;
  private final AtomicLong lastTag = new AtomicLong();
  private final Map<String, Ticket> open = new ConcurrentHashMap<>();

  /** A request; its token is null if the server says that its time is over. The deadline is of System.nanoTime(). */
  private record Ticket(
      String tag, String key, String owner, long lease, long deadline, CompletableFuture<Long> token) {
    long left() {
      return Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime()));
    }
  }

  /** Confirms: renews each grant that came as a message, since others can publish to the channel. */
  TicketClient(RedisClient client, boolean confirms) {
    this.confirms = confirms;
    commands = client.connect();
    messages = client.connectPubSub();
    messages.addListener(
        new RedisPubSubAdapter<>() {
          @Override
          public void message(String from, String text) {
            outcome(text);
          }

          /** Also after a broken connection: messages may have been lost meanwhile. */
          @Override
          public void subscribed(String to, long count) {
            open.values().forEach(TicketClient.this::ask);
          }
        });
    messages.sync().subscribe(channel);
  }

  /** Waits for the lock and returns its fencing token. */
  long acquire(String key, String owner, long lease, long wait)
      throws TimeoutException, InterruptedException, ExecutionException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(wait);
    String tag = Long.toString(lastTag.incrementAndGet());
    Ticket ticket = new Ticket(tag, key, owner, lease, deadline, new CompletableFuture<>());
    open.put(tag, ticket); // before the request: the message may come before the reply
    boolean granted = false;
    try {
      ask(ticket);
      Long token = ticket.token.get(wait, TimeUnit.MILLISECONDS);
      if (token == null) {
        throw new TimeoutException();
      }
      granted = true;
      return token;
    } finally {
      open.remove(tag);
      if (!granted) {
        giveUp(ticket);
      }
    }
  }

  /** Whether the lock was still held under this token. */
  boolean release(String key, String owner, long token) throws InterruptedException, ExecutionException {
    return DONE.equals(send("LOCK.RELEASE", key, owner, "TOKEN", "" + token).get());
  }

  /** Sends the request, or sends it again: an owner that waits keeps its place. */
  private void ask(Ticket ticket) {
    synchronized (ticket) {
      if (ticket.token.isDone()) {
        return;
      }
      String[] words = {
        ticket.owner, "PX", "" + ticket.lease, "ONCE", "BLOCK", "" + ticket.left(), "NOTIFY", channel, ticket.tag
      };
      send("LOCK.ACQUIRE", ticket.key, words).whenComplete((reply, error) -> answered(ticket, reply, error));
    }
  }

  private static void answered(Ticket ticket, Long token, Throwable error) {
    if (token != null) {
      ticket.token.complete(token);
    } else if (error != null && !subscribesAnew(error)) {
      ticket.token.completeExceptionally(error);
    }
  }

  /** The subscriber's connection is broken: `subscribed` asks again. */
  private static boolean subscribesAnew(Throwable error) {
    return error instanceof RedisCommandExecutionException && error.getMessage().startsWith("NOSUBSCRIBER");
  }

  /** A message: `granted TOKEN TAG`, `timeout TAG` or `failed CODE TAG`. */
  private void outcome(String message) {
    String[] words = message.split(" ", 3);
    Ticket ticket = open.get(words[words.length - 1]);
    if (ticket == null) {
      return; // given up, or not the module's
    }
    switch (words[0]) {
      case "granted" -> granted(ticket, Long.parseLong(words[1]));
      case "timeout" -> ticket.token.complete(null);
      default -> ticket.token.completeExceptionally(new IllegalStateException(message));
    }
  }

  private void granted(Ticket ticket, long token) {
    if (!confirms) {
      ticket.token.complete(token);
      return;
    }
    send("LOCK.RENEW", ticket.key, ticket.owner, "PX", "" + ticket.lease, "TOKEN", "" + token)
        .whenComplete(
            (renewed, error) -> {
              if (error != null) {
                ticket.token.completeExceptionally(error);
              } else if (DONE.equals(renewed)) {
                ticket.token.complete(token);
              } else {
                ask(ticket);
              }
            });
  }

  /** Withdraws the ticket, or releases the lock if the grant was quicker. */
  private void giveUp(Ticket ticket) {
    synchronized (ticket) { // no request is sent after the release
      ticket.token.cancel(false);
      send("LOCK.RELEASE", ticket.key, ticket.owner);
    }
  }

  private RedisFuture<Long> send(String name, String key, String... words) {
    CommandArgs<String, String> args = new CommandArgs<>(TEXT).addKey(key).addValues(words);
    return commands.async().dispatch(name::getBytes, new Answer(), args);
  }

  /** A number: a token, or 1 for done. QUEUED and nil are null. */
  private static final class Answer extends CommandOutput<String, String, Long> {
    Answer() {
      super(TEXT, null);
    }

    @Override
    public void set(long number) {
      output = number;
    }

    @Override
    public void set(ByteBuffer queuedOrNil) {}
  }

  @Override
  public void close() {
    messages.close();
    commands.close();
  }
}
