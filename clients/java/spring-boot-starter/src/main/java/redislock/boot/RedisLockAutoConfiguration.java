package redislock.boot;

import io.micrometer.core.instrument.MeterRegistry;
import java.util.Map;
import net.javacrumbs.shedlock.core.LockProvider;
import org.apache.commons.logging.LogFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.health.contributor.AbstractHealthIndicator;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.LockClient;
import redislock.micrometer.LockMetrics;
import redislock.micrometer.LockTimers;
import redislock.shedlock.FencedLockProvider;
import redislock.spring.FencedLockRegistry;

/**
 * For each of these packages that the application has: a registry of Spring Integration, a lock provider of ShedLock,
 * meters of Micrometer and a health indicator. A bean that the application defines itself takes the place of each.
 */
@AutoConfiguration(after = RedisLockClientAutoConfiguration.class)
public class RedisLockAutoConfiguration {
    private static final String FAILURE = "the server of the locks does not answer";

    /** The configuration of the beans. */
    public RedisLockAutoConfiguration() {}

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(value = FencedLockRegistry.class,
            name = "org.springframework.integration.support.locks.DistributedLock")
    static class Registry {
        @Bean
        @ConditionalOnMissingBean(LockRegistry.class)
        @ConditionalOnSingleCandidate(LockClient.class)
        FencedLockRegistry redisLockRegistry(LockClient client, RedisLockProperties properties) {
            return new FencedLockRegistry(client, properties.prefix());
        }
    }

    /** Says why there is no registry. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(FencedLockRegistry.class)
    @ConditionalOnMissingClass("org.springframework.integration.support.locks.DistributedLock")
    @ConditionalOnMissingBean(LockRegistry.class)
    static class NoRegistry {
        NoRegistry() {
            LogFactory.getLog(RedisLockAutoConfiguration.class).warn("There is no LockRegistry of redis-lock: "
                    + "FencedLockRegistry needs Spring Integration 7, and this application has an older one.");
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({LockProvider.class, FencedLockProvider.class})
    static class Provider {
        @Bean
        @ConditionalOnMissingBean(LockProvider.class)
        @ConditionalOnSingleCandidate(LockClient.class)
        FencedLockProvider redisLockProvider(LockClient client) {
            return new FencedLockProvider(client);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({MeterRegistry.class, LockMetrics.class})
    static class Meters {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnSingleCandidate(LockClient.class)
        LockMetrics redisLockMetrics(LockClient client, ObjectProvider<LockTimers> timers) {
            LockTimers known = timers.getIfUnique();
            return known == null ? new LockMetrics(client) : new LockMetrics(client, known);
        }
    }

    /** {@code LOCK.INFO} of a key that nothing locks, and what is known without it. */
    private static Map<String, Object> details(LockClient client, RedisLockProperties properties) {
        client.lock(properties.prefix() + ":health").isLocked();
        return Map.of("server", client.name(), "holds", client.statistics().holds(),
                "waiting", client.statistics().waiting());
    }

    /** Of Boot 4. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class Indicator {
        @Bean
        @ConditionalOnMissingBean(name = "redisLockHealthIndicator")
        @ConditionalOnSingleCandidate(LockClient.class)
        HealthIndicator redisLockHealthIndicator(LockClient client, RedisLockProperties properties) {
            return new AbstractHealthIndicator(FAILURE) {
                @Override
                protected void doHealthCheck(Health.Builder builder) {
                    builder.up().withDetails(details(client, properties));
                }
            };
        }
    }

    /** The same of Boot 3, which has it in another package. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.actuate.health.HealthIndicator.class)
    @ConditionalOnMissingClass("org.springframework.boot.health.contributor.HealthIndicator")
    static class IndicatorOfBoot3 {
        @Bean
        @ConditionalOnMissingBean(name = "redisLockHealthIndicator")
        @ConditionalOnSingleCandidate(LockClient.class)
        org.springframework.boot.actuate.health.HealthIndicator redisLockHealthIndicator(
                LockClient client, RedisLockProperties properties) {
            return new org.springframework.boot.actuate.health.AbstractHealthIndicator(FAILURE) {
                @Override
                protected void doHealthCheck(org.springframework.boot.actuate.health.Health.Builder builder) {
                    builder.up().withDetails(details(client, properties));
                }
            };
        }
    }
}
