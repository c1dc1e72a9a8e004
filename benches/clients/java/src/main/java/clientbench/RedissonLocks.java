package clientbench;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/** Redisson's RLock: `lock()`, which its watchdog renews, and `unlock()`. */
final class RedissonLocks implements Locks {
  private final RedissonClient client;

  RedissonLocks(int port, int contenders) {
    client = Redisson.create(Connections.redisson(port, contenders));
  }

  @Override
  public Lock lock(String name) {
    return Locks.of(client.getLock(name));
  }

  @Override
  public void close() {
    client.shutdown();
  }
}
