import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import java.util.concurrent.atomic.AtomicLong;

/** Locks of the redis-lock module for Lettuce. Times are in milliseconds. */
record Locks(RedisClient client, StatefulRedisConnection<String, String> shared) { // of a URI with ?timeout=5s
  static final AtomicLong NUMBERS = new AtomicLong(System.currentTimeMillis() * 1_000); // they rise over a restart, too

  Long acquire(String key, String owner, long wait, long lease) { // the fencing token; null: not in time
    var number = "" + NUMBERS.incrementAndGet();
    try (var own = client.connect()) { // on a shared one, everything behind a parked request waits
      for (long until = System.nanoTime() + wait * 1_000_000; ; ) {
        var block = "" + Math.max(1, Math.min(2_000, (until - System.nanoTime()) / 1_000_000));
        try { // when the connection drops Lettuce itself asks again: ONCE makes that safe
          Long token = send(own, "LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", block, "ONCE", "SEQ", number);
          if (token != null) return token;
        } catch (RedisCommandTimeoutException lost) {} // again
        if (System.nanoTime() >= until) { // given up: what is still to be served grants nothing
          send(shared, "LOCK.RELEASE", key, owner, "FINAL", number);
          return null;
        }
      }
    }
  }

  boolean renew(String key, String owner, long token, long lease) { // false: it is lost, stop working
    return Long.valueOf(1).equals(send(shared, "LOCK.RENEW", key, owner, "PX", "" + lease, "TOKEN", "" + token));
  }
  boolean release(String key, String owner, long token) { // false: it was not held any more
    return Long.valueOf(1).equals(send(shared, "LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token));
  }

  private Long send(StatefulRedisConnection<String, String> connection, String name, String key, String... words) {
    var args = new CommandArgs<>(StringCodec.UTF8).addKey(key).addValues(words);
    return connection.sync().dispatch(name::getBytes, new IntegerOutput<>(StringCodec.UTF8), args);
  }
}
