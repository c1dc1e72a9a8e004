package redislock;

import java.util.List;

/** What Redisson calls the things that belong to a lock. */
final class Keys {
  private Keys() {}

  /** The channel on which waiters of an exclusive lock listen. */
  static String channel(String name) {
    return prefixed("redisson_lock__channel", name);
  }

  /** The channel on which waiters of a read-write lock listen. */
  static String readWriteChannel(String name) {
    return prefixed("redisson_rwlock", name);
  }

  /** The counter of an RFencedLock. */
  static String fencedCounter(String name) {
    return prefixed("redisson_lock_token", name);
  }

  /** The list of those who wait for an RFairLock. */
  static String fairQueue(String name) {
    return prefixed("redisson_lock_queue", name);
  }

  /** When each of them is given up. */
  static String fairTimeouts(String name) {
    return prefixed("redisson_lock_timeout", name);
  }

  /**
   * How many listen on a channel: of {@code PUBLISH} (NUMSUB) or of {@code SPUBLISH} (SHARDNUMSUB).
   */
  static long listeners(Conn conn, String kind, String channel) {
    return (Long) ((List<?>) conn.call("PUBSUB", kind, channel)).get(1);
  }

  private static String prefixed(String prefix, String name) {
    return name.contains("{") ? prefix + ":" + name : prefix + ":{" + name + "}";
  }
}
