package redislock.boot;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.Collection;
import java.util.stream.Collectors;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisNode;
import org.springframework.data.redis.connection.RedisSentinelConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redislock.LockClient;
import redislock.LockObserver;
import redislock.micrometer.LockTimers;

/**
 * A {@link LockClient} on the application's own connection factory, that is of {@code spring.data.redis.*}, or at
 * {@code redis-lock.address}. A client that the application defines itself takes its place.
 */
@AutoConfiguration(afterName = {
    "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
    "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
})
@EnableConfigurationProperties(RedisLockProperties.class)
public class RedisLockClientAutoConfiguration {
    /** The configuration of the beans. */
    public RedisLockClientAutoConfiguration() {}

    private static LockClient client(
            LockClient.Builder builder, RedisLockProperties properties, ObjectProvider<LockObserver> observer) {
        observer.ifUnique(builder::observer);
        return builder.responseTimeout(properties.responseTimeout()).build();
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({MeterRegistry.class, LockTimers.class})
    static class Timers {
        @Bean
        @ConditionalOnMissingBean(LockObserver.class)
        LockTimers redisLockTimers() {
            return new LockTimers();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty("redis-lock.address")
    static class OfAddress {
        @Bean
        @ConditionalOnMissingBean
        LockClient redisLockClient(RedisLockProperties properties, ObjectProvider<LockObserver> observer) {
            return client(LockClient.builder(properties.address()), properties, observer);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LettuceConnectionFactory.class)
    @ConditionalOnProperty(name = "redis-lock.address", matchIfMissing = true, havingValue = "false")
    static class OfFactory {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnSingleCandidate(LettuceConnectionFactory.class)
        LockClient redisLockClient(LettuceConnectionFactory factory, RedisLockProperties properties,
                ObjectProvider<LockObserver> observer) {
            factory.start();
            return client(builder(factory).name(name(factory)), properties, observer);
        }

        @Bean
        @ConditionalOnBean(name = "redisLockClient")
        LockClientLifecycle redisLockClientLifecycle(
                @Qualifier("redisLockClient") LockClient client, LettuceConnectionFactory factory) {
            return new LockClientLifecycle(client, factory);
        }

        private static LockClient.Builder builder(LettuceConnectionFactory factory) {
            AbstractRedisClient client = factory.getRequiredNativeClient();
            if (client instanceof RedisClusterClient cluster) {
                return LockClient.builder(cluster);
            }
            try {
                // The address of that client has no database: Spring Data selects it on each connection.
                return LockClient.builder((RedisClient) client).database(factory.getDatabase());
            } catch (IllegalArgumentException noAddress) {
                throw new IllegalStateException("the connection factory has a static master/replica configuration, "
                        + "whose client of Lettuce has no address: set redis-lock.address to that of the primary",
                        noAddress);
            }
        }

        /** The same name as that of an address, see {@link LockClient#name()}. */
        private static String name(LettuceConnectionFactory factory) {
            RedisClusterConfiguration cluster = factory.getClusterConfiguration();
            if (cluster != null) {
                return names(cluster.getClusterNodes());
            }
            RedisSentinelConfiguration sentinel = factory.getSentinelConfiguration();
            String servers = sentinel != null ? names(sentinel.getSentinels()) + "/" + sentinel.getMaster().getName()
                    : factory.getSocketConfiguration() != null ? factory.getSocketConfiguration().getSocket()
                    : factory.getHostName() + ":" + factory.getPort();
            return servers + "/" + factory.getDatabase();
        }

        private static String names(Collection<RedisNode> nodes) {
            return nodes.stream().map(RedisNode::asString).sorted().collect(Collectors.joining(","));
        }
    }
}
