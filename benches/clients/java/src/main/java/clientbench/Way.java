package clientbench;

import java.util.Arrays;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** The libraries, by their names in the orders of the bench. */
enum Way {
  UNLOCKED("unlocked", (port, contenders) -> new Unlocked()),
  LOCK("lock", (port, contenders) -> new ModuleLocks(port)),
  REGISTRY("lock-registry", (port, contenders) -> new RegistryLocks(port)),
  SPRING_SPIN("spring-spin", (port, contenders) -> new SpringLocks(port, RedisLockType.SPIN_LOCK)),
  SPRING_PUBSUB("spring-pubsub", (port, contenders) -> new SpringLocks(port, RedisLockType.PUB_SUB_LOCK)),
  REDISSON("redisson", RedissonLocks::new);

  /** Makes a client object for so many contenders. */
  interface Connect {
    Locks to(int port, int contenders);
  }

  private final String name;
  private final Connect connect;

  Way(String name, Connect connect) {
    this.name = name;
    this.connect = connect;
  }

  static Way named(String name) {
    return Arrays.stream(values())
        .filter(way -> way.name.equals(name))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("no way " + name));
  }

  Locks connect(int port, int contenders) {
    return connect.to(port, contenders);
  }
}
