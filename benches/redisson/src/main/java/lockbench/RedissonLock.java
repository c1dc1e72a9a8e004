package lockbench;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Redisson's lock as it is: lock(), which its watchdog renews, and unlock(). */
final class RedissonLock implements Locks.Lock {
  private final RLock lock;

  RedissonLock(RedissonClient client, String name) {
    lock = client.getLock(name);
  }

  @Override
  public long lock() {
    lock.lock();
    return NO_TOKEN;
  }

  @Override
  public void unlock() {
    lock.unlock();
  }
}
