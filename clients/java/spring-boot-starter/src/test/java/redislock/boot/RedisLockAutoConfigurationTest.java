package redislock.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.BeanCreationException;
import org.springframework.beans.factory.NoSuchBeanDefinitionException;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.logging.LoggingSystem;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisStaticMasterReplicaConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.util.ClassUtils;
import redislock.FencedLock;
import redislock.LockClient;
import redislock.micrometer.LockMetrics;
import redislock.testing.TestServer;

/** Applications of Spring Boot 4, or of 3.5, which has no beans of Spring Integration 7. */
class RedisLockAutoConfigurationTest {
    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithOwnClient {
        @Bean
        LockClient own() {
            return LockClient.create("redis://127.0.0.1:1");
        }
    }

    private static ConfigurableApplicationContext start(Class<?> application, Map<String, Object> properties) {
        SpringApplication boot = new SpringApplication(application);
        boot.setWebApplicationType(WebApplicationType.NONE);
        boot.setBannerMode(Banner.Mode.OFF);
        boot.setDefaultProperties(properties);
        return boot.run("--logging.level.root=off");
    }

    /** The indicators of the two versions are different types with the same methods. */
    private static String health(ConfigurableApplicationContext context) throws Exception {
        Object indicator = context.getBean("redisLockHealthIndicator");
        Object health = indicator.getClass().getMethod("health").invoke(indicator);
        return health.toString();
    }

    private static void assertLocks(ConfigurableApplicationContext context, TestServer server) throws Exception {
        FencedLock lock = context.getBean(LockClient.class).lock("k");
        lock.lock();
        lock.unlock();
        assertNotNull(context.getBean(LockProvider.class));
        assertNotNull(context.getBean(LockMetrics.class));
        boolean isIntegration7 =
                ClassUtils.isPresent("org.springframework.integration.support.locks.DistributedLock", null);
        assertEquals(isIntegration7 ? 1 : 0, context.getBeanNamesForType(LockRegistry.class).length);
        if (isIntegration7) {
            var distributed = context.getBean(LockRegistry.class).obtain("name");
            assertTrue(distributed.tryLock());
            assertEquals(1L, server.call("EXISTS", "locks:name"));
            distributed.unlock();
        }
        assertTrue(health(context).startsWith("UP"), health(context));
    }

    @Test
    void the_connection_factory_of_the_application_is_used() throws Exception {
        try (TestServer server = TestServer.builder().password("s3cret").start()) {
            Map<String, Object> properties = Map.of("spring.data.redis.host", "127.0.0.1", "spring.data.redis.port",
                    server.port(), "spring.data.redis.password", "s3cret", "spring.data.redis.database", 3,
                    "management.defaults.metrics.export.enabled", false);
            try (ConfigurableApplicationContext context = start(Application.class, properties)) {
                FencedLock lock = context.getBean(LockClient.class).lock("k");
                lock.lock();
                assertTrue(server.info("keyspace").contains("db3"), server.info("keyspace"));
                lock.unlock();
                server.pause();
                server.resume();
                assertTrue(health(context).startsWith("UP"), health(context));
                // As of an address: errors and meters name the server.
                assertEquals("127.0.0.1:" + server.port() + "/3", context.getBean(LockClient.class).name());
            }
        }
    }

    @Test
    void an_address_takes_the_place_of_the_connection_factory() throws Exception {
        try (TestServer server = TestServer.start()) {
            try (ConfigurableApplicationContext context =
                    start(Application.class, Map.of("redis-lock.address", server.address()))) {
                assertLocks(context, server);
            }
        }
    }

    @Test
    void a_server_that_cannot_be_reached_is_down_and_stops_no_start() throws Exception {
        try (ConfigurableApplicationContext context =
                start(Application.class, Map.of("redis-lock.address", "redis://127.0.0.1:1"))) {
            assertTrue(health(context).startsWith("DOWN"), health(context));
        }
    }

    @Test
    void a_client_of_the_application_takes_the_place_of_ours() {
        try (ConfigurableApplicationContext context = start(WithOwnClient.class, Map.of())) {
            assertSame(context.getBean("own"), context.getBean(LockClient.class));
            assertThrows(NoSuchBeanDefinitionException.class, () -> context.getBean("redisLockClient"));
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithTwoClients extends WithOwnClient {
        @Bean
        LockClient another() {
            return LockClient.create("redis://127.0.0.1:2");
        }
    }

    @Test
    void an_application_with_two_clients_starts_without_what_needs_one() {
        try (ConfigurableApplicationContext context = start(WithTwoClients.class, Map.of())) {
            assertEquals(2, context.getBeanNamesForType(LockClient.class).length);
            for (Class<?> type : List.of(LockRegistry.class, LockProvider.class, LockMetrics.class)) {
                assertEquals(0, context.getBeanNamesForType(type).length, type.getName());
            }
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration(excludeName = { // Spring's own beans that need one
        "org.springframework.boot.data.redis.autoconfigure.DataRedisReactiveAutoConfiguration",
        "org.springframework.boot.autoconfigure.data.redis.RedisReactiveAutoConfiguration"
    })
    static class WithTwoFactories {
        @Bean
        LettuceConnectionFactory first() {
            return new LettuceConnectionFactory("127.0.0.1", 1);
        }

        @Bean
        LettuceConnectionFactory second() {
            return new LettuceConnectionFactory("127.0.0.1", 2);
        }
    }

    @Test
    void an_application_with_two_connection_factories_starts_without_a_client() {
        try (ConfigurableApplicationContext context = start(
                WithTwoFactories.class, Map.of("spring.data.redis.repositories.enabled", false))) {
            assertEquals(0, context.getBeanNamesForType(LockClient.class).length);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class WithReplicas {
        @Bean
        LettuceConnectionFactory replicas() {
            RedisStaticMasterReplicaConfiguration nodes = new RedisStaticMasterReplicaConfiguration("127.0.0.1", 1);
            nodes.addNode("127.0.0.1", 2);
            return new LettuceConnectionFactory(nodes);
        }
    }

    @Test
    void a_static_configuration_of_replicas_is_refused_unless_there_is_an_address() {
        Throwable refused = assertThrows(BeanCreationException.class, () -> start(WithReplicas.class, Map.of()));
        while (refused.getCause() instanceof Exception next && !(refused instanceof IllegalStateException)) {
            refused = next;
        }
        assertTrue(refused.getMessage().contains("redis-lock.address"), refused::toString);
        start(WithReplicas.class, Map.of("redis-lock.address", "redis://127.0.0.1:1")).close();
    }

    @Test
    void the_log_says_why_there_is_no_registry() {
        boolean isIntegration7 =
                ClassUtils.isPresent("org.springframework.integration.support.locks.DistributedLock", null);
        Collection<String> texts = new ConcurrentLinkedQueue<>();
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord logged) {
                texts.add(logged.getMessage());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger(RedisLockAutoConfiguration.class.getName());
        logger.addHandler(handler);
        logger.setLevel(Level.WARNING);
        // That of Spring Boot would remove the handler.
        System.setProperty(LoggingSystem.SYSTEM_PROPERTY, LoggingSystem.NONE);
        try {
            start(Application.class, Map.of("redis-lock.address", "redis://127.0.0.1:1")).close();
            boolean isSaid = texts.stream().anyMatch(text -> text.contains("needs Spring Integration 7"));
            assertEquals(!isIntegration7, isSaid, texts::toString);
        } finally {
            System.clearProperty(LoggingSystem.SYSTEM_PROPERTY);
            logger.removeHandler(handler);
            logger.setLevel(null);
        }
    }
}
