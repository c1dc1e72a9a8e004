package clientbench;

import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** Spring Integration's registry: one for each client object, as an application has one. */
final class SpringLocks implements Locks {
  private final LettuceConnectionFactory factory;
  private final RedisLockRegistry registry;

  SpringLocks(int port, RedisLockType type) {
    factory = Connections.spring(port);
    registry = new RedisLockRegistry(factory, "registry");
    registry.setRedisLockType(type);
  }

  @Override
  public Lock lock(String name) {
    return Locks.of(registry.obtain(name));
  }

  @Override
  public void close() {
    registry.destroy();
    factory.destroy();
  }
}
