import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.*;

/** Locks of the redis-lock module for Jedis, with waits by ticket. Times are in milliseconds. */
final class Tickets {
  private final UnifiedJedis redis;
  private final String channel;
  private final Map<String, BlockingQueue<String>> open = new ConcurrentHashMap<>(); // the messages for each tag

  Tickets(UnifiedJedis redis, String shard) { // in a cluster the hash tag of the keys, "{invoices}"; else empty
    this.redis = redis;
    channel = "lock:" + shard + UUID.randomUUID();
    var listener = new Thread(() -> listen(!shard.isEmpty()));
    listener.setDaemon(true);
    listener.start();
  }

  /** The fencing token; null: not granted in time. An interrupt gives up. */
  Long acquire(String key, String owner, long wait, long lease) throws InterruptedException {
    long until = System.nanoTime() + wait * 1_000_000;
    String tag = UUID.randomUUID().toString(), message = "ask";
    var messages = new LinkedBlockingQueue<String>();
    open.put(tag, messages); // before the request: the message may be quicker than the reply
    long number = Locks.NUMBERS.incrementAndGet();
    try {
      while (message != null && !message.startsWith("timeout")) {
        long left = Math.max(0, (until - System.nanoTime()) / 1_000_000);
        var words = message.split(" ");
        try {
          if (words[0].equals("failed")) throw new JedisDataException(words[1]);
          if (words[0].equals("granted")) {
            long token = Long.parseLong(words[1]);
            if (renew(key, owner, token, lease)) return token;
          }
          var reply = send("LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", "" + (left + 1),
              "NOTIFY", channel, tag, "ONCE", "SEQ", "" + number);
          if (reply instanceof Long token) return token;
        } catch (JedisConnectionException lost) {
          if (left == 0) throw lost;
          MILLISECONDS.sleep(50);
          messages.add("ask"); // ONCE makes that safe
        } catch (JedisDataException refused) { // without a subscriber the next subscription asks
          if (!refused.getMessage().startsWith("NOSUBSCRIBER")) throw refused;
        }
        message = messages.poll(left + 1_000, MILLISECONDS);
      }
      giveUp(key, owner, number);
      return null;
    } catch (InterruptedException | JedisException givenUp) {
      try {
        giveUp(key, owner, number);
      } catch (JedisException lost) {
        givenUp.addSuppressed(lost);
      }
      throw givenUp;
    } finally {
      open.remove(tag);
    }
  }

  private void giveUp(String key, String owner, long number) { // also what is still to be served grants nothing
    send("LOCK.RELEASE", key, owner, "FINAL", "" + number);
  }

  boolean renew(String key, String owner, long token, long lease) { // false: it is lost, stop working
    return Long.valueOf(1).equals(send("LOCK.RENEW", key, owner, "PX", "" + lease, "TOKEN", "" + token));
  }

  boolean release(String key, String owner, long token) { // false: it was not held any more
    return Long.valueOf(1).equals(send("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token));
  }

  private Object send(String name, String... words) {
    return redis.sendCommand(words[0], name::getBytes, words);
  }

  private void listen(boolean inCluster) {
    for (; ; LockSupport.parkNanos(50_000_000)) {
      try {
        if (inCluster) redis.exists(channel); // a command by which the client learns where the slot has moved to
        if (inCluster) ((RedisClusterClient) redis).ssubscribe(new OfShard(), channel);
        else redis.subscribe(new OfServer(), channel);
      } catch (JedisException lost) {
        // subscribes again
      }
    }
  }

  private void hear(String message) {
    var messages = open.get(message.substring(message.lastIndexOf(' ') + 1));
    if (messages != null) messages.add(message);
  }

  private void askAgain() { // messages may have been lost
    open.values().forEach(messages -> messages.add("ask"));
  }

  private class OfServer extends JedisPubSub {
    @Override public void onSubscribe(String channel, int count) { askAgain(); }
    @Override public void onMessage(String channel, String message) { hear(message); }
  }

  private class OfShard extends JedisShardedPubSub { // ends when its slot moves
    @Override public void onSSubscribe(String channel, int count) { askAgain(); }
    @Override public void onSMessage(String channel, String message) { hear(message); }
  }
}
