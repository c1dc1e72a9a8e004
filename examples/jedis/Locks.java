import java.util.concurrent.locks.LockSupport;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** Locks of the redis-lock module for Jedis. Times are in milliseconds. */
record Locks(RedisClient redis) {
  static Locks at(String host, int port) { // without a limit, a dead network is never noticed
    var config = DefaultJedisClientConfig.builder().blockingSocketTimeoutMillis(5_000).build();
    return new Locks(RedisClient.builder().hostAndPort(host, port).clientConfig(config).build());
  }

  Long acquire(String key, String owner, long wait, long lease) { // the fencing token; null: not in time
    for (long until = System.nanoTime() + wait * 1_000_000; ; ) {
      long block = Math.max(1, Math.min(2_000, (until - System.nanoTime()) / 1_000_000));
      Long token = send(until, "LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", "" + block, "ONCE");
      if (token != null || System.nanoTime() >= until) return token;
    }
  }

  boolean renew(String key, String owner, long token, long lease) { // false: it is lost, stop working
    long until = System.nanoTime() + lease / 3 * 1_000_000;
    return Long.valueOf(1).equals(send(until, "LOCK.RENEW", key, owner, "PX", "" + lease, "TOKEN", "" + token));
  }

  boolean release(String key, String owner, long token) { // false: it was not held any more
    long until = System.nanoTime() + 1_000_000_000;
    return Long.valueOf(1).equals(send(until, "LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token));
  }

  private Long send(long until, String name, String... words) {
    for (; ; LockSupport.parkNanos(50_000_000)) { // again: ONCE, or the token, makes that safe
      try { // sendCommand would fail after 2 s without a reply
        return (Long) redis.sendBlockingCommand(name::getBytes, words);
      } catch (JedisConnectionException failed) {
        if (System.nanoTime() >= until) throw failed;
      }
    }
  }
}
