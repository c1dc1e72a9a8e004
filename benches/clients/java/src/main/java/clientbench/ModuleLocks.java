package clientbench;

import redislock.FencedLock;
import redislock.LockClient;

/** The package redis-lock-client by java.util.concurrent's interface: `lock()`, which is renewed, and `unlock()`. */
final class ModuleLocks implements Locks {
  private final LockClient client;

  ModuleLocks(int port) {
    client = LockClient.create("redis://" + Connections.HOST + ":" + port);
  }

  @Override
  public Lock lock(String name) {
    FencedLock lock = client.lock(name);
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
    client.close();
  }
}
