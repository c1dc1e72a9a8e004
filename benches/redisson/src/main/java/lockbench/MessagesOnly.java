package lockbench;

import org.redisson.api.RBucket;
import org.redisson.api.RedissonClient;

/**
 * As many messages as Redisson's lock sends, in the same way, with the cheapest command in each:
 * one that lock() would wait for, one that unlock() would, and one whose answer nobody waits for.
 */
final class MessagesOnly implements Locks.Lock {
  private final RBucket<String> absent;

  MessagesOnly(RedissonClient client, String name) {
    absent = client.getBucket(name);
  }

  @Override
  public long lock() {
    absent.isExists();
    return NO_TOKEN;
  }

  @Override
  public void unlock() {
    absent.isExists();
    absent.isExistsAsync();
  }
}
