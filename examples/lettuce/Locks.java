import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;

/** Locks of the redis-lock module for Lettuce. Times are in milliseconds. */
record Locks(RedisClient client, StatefulRedisConnection<String, String> shared) {
  static Locks at(String host, int port) { // a slice of waiting must be shorter than the timeout
    var client = RedisClient.create("redis://" + host + ":" + port + "?timeout=5s");
    return new Locks(client, client.connect());
  }

  Long acquire(String key, String owner, long wait, long lease) { // the fencing token; null: not in time
    try (var own = client.connect()) { // on a shared one, everything behind a parked request waits
      for (long until = System.nanoTime() + wait * 1_000_000; ; ) {
        long block = Math.max(1, Math.min(2_000, (until - System.nanoTime()) / 1_000_000));
        try { // when the connection drops Lettuce itself asks again: ONCE makes that safe
          Long token = send(own, "LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", "" + block, "ONCE");
          if (token != null || System.nanoTime() >= until) return token;
        } catch (RedisCommandTimeoutException failed) {
          if (System.nanoTime() >= until) throw failed;
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
