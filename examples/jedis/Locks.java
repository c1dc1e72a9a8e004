import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** Locks of the redis-lock module for Jedis. Times are in milliseconds. */
record Locks(RedisClient redis) { // its blockingSocketTimeoutMillis: 5_000, else a dead network is never noticed
  static final AtomicLong NUMBERS = new AtomicLong(System.currentTimeMillis() * 1_000); // they rise over a restart, too

  Long acquire(String key, String owner, long wait, long lease) { // the fencing token; null: not in time
    long until = System.nanoTime() + wait * 1_000_000, number = NUMBERS.incrementAndGet(), lost = 0;
    do {
      var block = "" + Math.max(1, Math.min(2_000, (until - System.nanoTime()) / 1_000_000));
      try {
        Long token = send(1, "LOCK.ACQUIRE", key, owner, "PX", "" + lease, "BLOCK", block, "ONCE", "SEQ", "" + number);
        if (token != null) return token;
      } catch (JedisConnectionException failed) {
        lost++;
        LockSupport.parkNanos(50_000_000); // then again: ONCE makes that safe
      }
    } while (System.nanoTime() < until);
    if (lost > 0) send(1, "LOCK.RELEASE", key, owner, "FINAL", "" + number); // what is served late grants nothing
    return null;
  }

  boolean renew(String key, String owner, long token, long lease) { // false: it is lost, stop working
    return Long.valueOf(1).equals(send(2, "LOCK.RENEW", key, owner, "PX", "" + lease, "TOKEN", "" + token));
  }
  boolean release(String key, String owner, long token) { // false: it was not held any more
    return Long.valueOf(1).equals(send(2, "LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token));
  }
  private Long send(int tries, String name, String... words) { // again with a token only
    try { // sendCommand would fail after 2 s without a reply
      return (Long) redis.sendBlockingCommand(name::getBytes, words);
    } catch (JedisConnectionException lost) {
      if (tries == 1) throw lost;
      return send(tries - 1, name, words);
    }
  }
}
