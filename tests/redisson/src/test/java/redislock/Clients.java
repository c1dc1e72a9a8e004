package redislock;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SingleServerConfig;

/** Redisson instances, small ones: a test has several, and each of them as many threads. */
final class Clients {
  private static final String[] NAME_MAPPERS = {
    "org.redisson.config.NameMapper", "org.redisson.api.NameMapper"
  };

  private Clients() {}

  /** As every instance here begins. The default codec of older ones needs what Java 17 forbids. */
  static Config config() {
    return new Config().setCodec(StringCodec.INSTANCE).setThreads(2).setNettyThreads(2);
  }

  /** What an instance that talks to one server needs besides. */
  static SingleServerConfig single(Config config, int port) {
    return config
        .useSingleServer()
        .setAddress("redis://127.0.0.1:" + port)
        .setConnectionPoolSize(16)
        .setConnectionMinimumIdleSize(1)
        .setSubscriptionConnectionPoolSize(2);
  }

  /** An instance that talks to one server. */
  static RedissonClient of(int port) {
    Config config = config();
    single(config, port);
    return Redisson.create(config);
  }

  /** An instance that talks to a cluster of primaries only. */
  static RedissonClient ofCluster(int port) {
    Config config = config();
    config
        .useClusterServers()
        .addNodeAddress("redis://127.0.0.1:" + port)
        .setReadMode(ReadMode.MASTER)
        .setMasterConnectionPoolSize(8)
        .setMasterConnectionMinimumIdleSize(1)
        .setSubscriptionConnectionPoolSize(2);
    return Redisson.create(config);
  }

  /** Whether this version of Redisson is at least that one. */
  static boolean since(int major, int minor) {
    String[] version = System.getProperty("tested.version").split("\\.");
    int mine = Integer.parseInt(version[0]);
    return mine > major || mine == major && Integer.parseInt(version[1]) >= minor;
  }

  /** Whether this version of Redisson can map names. */
  static boolean mapsNames() {
    return nameMapper() != null;
  }

  /**
   * Names on the server begin with the prefix. The interface moved with 4.0, hence by reflection.
   */
  static void mapNames(SingleServerConfig config, String prefix)
      throws ReflectiveOperationException {
    Class<?> type = nameMapper();
    Object mapper =
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (self, method, args) -> {
              String name = (String) args[0];
              return method.getName().equals("map")
                  ? prefix + name
                  : name.substring(prefix.length());
            });
    Method setter = SingleServerConfig.class.getMethod("setNameMapper", type);
    setter.invoke(config, mapper);
  }

  private static Class<?> nameMapper() {
    for (String name : NAME_MAPPERS) {
      try {
        return Class.forName(name);
      } catch (ClassNotFoundException older) {
        continue;
      }
    }
    return null;
  }
}
