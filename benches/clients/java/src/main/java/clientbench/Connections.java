package clientbench;

import io.lettuce.core.api.StatefulConnection;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettucePoolingClientConfiguration;

/** How Spring and Redisson are connected: by their defaults, but for what each constant says. */
final class Connections {
  static final String HOST = "127.0.0.1";

  /** Longer than the defaults: a machine that stalls does not end the run. */
  private static final Duration ANSWERS_WITHIN = Duration.ofSeconds(30);

  /** Spring Boot's default of `spring.data.redis.lettuce.pool.max-active` and `max-idle`. */
  private static final int SPRING_POOL = 8;

  /** Redisson's default. */
  private static final int MOST_CONNECTIONS = 64;

  /** Of a Redisson client, for commands: a contender does not wait for the last answer of `unlock()`. */
  private static final int FEWEST_CONNECTIONS = 2;

  /** Redisson has 32 by default, for each client; on one core its pairs are the fastest with one. */
  private static final int EVENT_THREADS = 1;

  /** Redisson's default, for each client. */
  private static final int EXECUTOR_THREADS = 16;

  private static final MultiThreadIoEventLoopGroup EVENTS =
      new MultiThreadIoEventLoopGroup(EVENT_THREADS, daemons(), NioIoHandler.newFactory());
  private static final ExecutorService EXECUTOR = Executors.newFixedThreadPool(EXECUTOR_THREADS, daemons());

  private Connections() {}

  private static ThreadFactory daemons() {
    return task -> {
      Thread thread = new Thread(task);
      thread.setDaemon(true);
      return thread;
    };
  }

  /** A factory with the pool that Spring Boot makes where commons-pool2 is present. */
  static LettuceConnectionFactory spring(int port) {
    GenericObjectPoolConfig<StatefulConnection<?, ?>> pool = new GenericObjectPoolConfig<>();
    pool.setMaxTotal(SPRING_POOL);
    pool.setMaxIdle(SPRING_POOL);
    LettucePoolingClientConfiguration configuration =
        LettucePoolingClientConfiguration.builder()
            .poolConfig(pool)
            .commandTimeout(ANSWERS_WITHIN)
            .shutdownTimeout(Duration.ZERO)
            .build();
    LettuceConnectionFactory factory =
        new LettuceConnectionFactory(new RedisStandaloneConfiguration(HOST, port), configuration);
    factory.afterPropertiesSet();
    factory.start();
    return factory;
  }

  /** A client whose pool fits its contenders, so that no connection is opened while it is measured. */
  static Config redisson(int port, int contenders) {
    int connections = Math.min(Math.max(contenders, FEWEST_CONNECTIONS), MOST_CONNECTIONS);
    Config config = new Config();
    config.setEventLoopGroup(EVENTS);
    config.setExecutor(EXECUTOR);
    config
        .useSingleServer()
        .setAddress("redis://" + HOST + ":" + port)
        .setTimeout((int) ANSWERS_WITHIN.toMillis())
        .setConnectionPoolSize(connections)
        .setConnectionMinimumIdleSize(connections);
    return config;
  }

  static void close() {
    EXECUTOR.shutdown();
    EVENTS.shutdownGracefully(0, 1, TimeUnit.SECONDS).syncUninterruptibly();
  }
}
