import static java.util.concurrent.TimeUnit.MILLISECONDS;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.pubsub.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;

/** Locks of the redis-lock module for Lettuce, with waits by ticket. Times are in milliseconds. */
final class Tickets extends RedisPubSubAdapter<String, String> {
  private final StatefulRedisPubSubConnection<String, String> redis; // for the requests and the messages
  private final String channel;
  private final Map<String, Wait> open = new ConcurrentHashMap<>(); // by their tags

  Tickets(StatefulRedisPubSubConnection<String, String> connection, String shard) {
    redis = connection; // `shard`: in a cluster the hash tag of the keys, "{invoices}"; else empty
    channel = "lock:" + shard + UUID.randomUUID();
    redis.addListener(this);
    if (shard.isEmpty()) redis.async().subscribe(channel);
    else subscribeToShard();
  }

  /** The fencing token; null: not granted in time. `cancel` gives up. */
  CompletableFuture<Long> acquire(String key, String owner, long wait, long lease) {
    return new Wait(key, owner, wait, lease);
  }

  CompletableFuture<Boolean> renew(String key, String owner, long token, long lease) { // false: lost, stop working
    return send("LOCK.RENEW", key, owner, "PX", "" + lease, "TOKEN", "" + token).thenApply(Long.valueOf(1)::equals);
  }

  CompletableFuture<Boolean> release(String key, String owner, long token) { // false: it was not held any more
    return send("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token).thenApply(Long.valueOf(1)::equals);
  }

  private CompletableFuture<Long> send(String name, String key, String... words) {
    var args = new CommandArgs<>(StringCodec.UTF8).addKey(key).addValues(words);
    var number = new IntegerOutput<>(StringCodec.UTF8) { // null: QUEUED, or nil
      @Override public void set(ByteBuffer queued) {}
    };
    return redis.async().dispatch(name::getBytes, number, args).toCompletableFuture().orTimeout(5_000, MILLISECONDS);
  }

  @Override public void subscribed(String channel, long count) { // again after a reconnect: messages may be lost
    open.values().forEach(Wait::ask);
  }

  @Override public void message(String channel, String message) {
    var wait = open.get(message.substring(message.lastIndexOf(' ') + 1));
    if (wait != null) wait.hear(message.split(" "));
  }

  private void subscribeToShard() { // again every 2 s: after a failover the former primary takes it, too
    CompletableFuture.delayedExecutor(2_000, MILLISECONDS).execute(this::subscribeToShard);
    redis.async().ssubscribe(channel);
  }

  @Override public void ssubscribed(String channel, long count) { subscribed(channel, count); }
  @Override public void smessage(String channel, String message) { message(channel, message); }
  @Override public void sunsubscribed(String channel, long count) { redis.async().ssubscribe(channel); } // slot moved

  private final class Wait extends CompletableFuture<Long> {
    private final String key, owner, tag = UUID.randomUUID().toString(), number = "" + Locks.NUMBERS.incrementAndGet();
    private final long lease, until;

    Wait(String key, String owner, long wait, long lease) {
      this.key = key;
      this.owner = owner;
      this.lease = lease;
      until = System.nanoTime() + wait * 1_000_000;
      orTimeout(wait + 1_000, MILLISECONDS); // no message in time is an error
      whenComplete((token, failed) -> {
        open.remove(tag);
        if (token == null) send("LOCK.RELEASE", key, owner, "FINAL", number); // what is served late grants nothing
      });
      open.put(tag, this); // before the request: the message may be quicker than the reply
      ask();
    }

    void ask() {
      var left = "" + (Math.max(0, (until - System.nanoTime()) / 1_000_000) + 1);
      send("LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", left, "NOTIFY", channel, tag, "ONCE", "SEQ", number)
          .whenComplete(this::replied);
    }

    private void replied(Long token, Throwable failed) {
      if (token != null) end(token, null);
      else if (failed instanceof RedisCommandExecutionException) {
        if (!failed.getMessage().startsWith("NOSUBSCRIBER")) end(null, failed); // else the next subscription asks
      } else if (failed != null && open.containsKey(tag)) { // ONCE makes another request safe
        CompletableFuture.delayedExecutor(50, MILLISECONDS).execute(this::ask);
      }
    }

    void hear(String[] words) {
      if (words[0].equals("timeout")) end(null, null);
      if (words[0].equals("failed")) end(null, new RedisCommandExecutionException(words[1]));
      if (!words[0].equals("granted")) return;
      long token = Long.parseLong(words[1]);
      renew(key, owner, token, lease).whenComplete((held, failed) -> {
        if (Boolean.TRUE.equals(held)) end(token, null);
        else ask();
      });
    }

    private void end(Long token, Throwable failed) {
      if (failed == null) complete(token);
      else completeExceptionally(failed);
    }
  }
}
