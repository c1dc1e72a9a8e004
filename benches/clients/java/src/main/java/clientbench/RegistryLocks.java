package clientbench;

import redislock.LockClient;
import redislock.spring.FencedDistributedLock;
import redislock.spring.FencedLockRegistry;

/** The package redis-lock-spring-integration: a registry, which takes the place of RedisLockRegistry. */
final class RegistryLocks implements Locks {
  private final LockClient client;
  private final FencedLockRegistry registry;

  RegistryLocks(int port) {
    client = LockClient.create("redis://" + Connections.HOST + ":" + port);
    registry = new FencedLockRegistry(client, "registry");
  }

  @Override
  public Lock lock(String name) {
    FencedDistributedLock lock = registry.obtain(name);
    return new Lock() {
      @Override
      public long lock() {
        lock.lock();
        return lock.token();
      }

      @Override
      public void unlock() {
        lock.unlock();
      }
    };
  }

  @Override
  public void close() {
    registry.destroy();
    client.close();
  }
}
