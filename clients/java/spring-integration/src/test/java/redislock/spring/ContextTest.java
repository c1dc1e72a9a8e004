package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.integration.channel.QueueChannel;
import org.springframework.integration.config.EnableIntegration;
import org.springframework.integration.dsl.IntegrationFlow;
import org.springframework.integration.store.SimpleMessageStore;
import org.springframework.integration.support.MessageBuilder;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.messaging.Message;
import org.springframework.messaging.MessageChannel;
import redislock.testing.Readme;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** The registry as a bean in the place of another one. */
class ContextTest {
    @Configuration
    @EnableIntegration
    static class Flow {
        private final LockRegistry<DistributedLock> locks;

        Flow(LockRegistry<DistributedLock> locks) {
            this.locks = locks;
        }

        @Bean
        IntegrationFlow sums(QueueChannel results) {
            return IntegrationFlow.from("numbers")
                    .aggregate(aggregator -> aggregator
                            .lockRegistry(locks)
                            .messageStore(new SimpleMessageStore())
                            .outputProcessor(group -> group.getMessages().stream()
                                    .mapToInt(message -> (Integer) message.getPayload()).sum()))
                    .channel(results)
                    .get();
        }

        @Bean
        QueueChannel results() {
            return new QueueChannel();
        }
    }

    @Test
    void an_aggregator_uses_the_registry() {
        try (TestServer server = TestServer.start()) {
            try (var context = open(server)) {
                sendGroups(context.getBean("numbers", MessageChannel.class), 5, 10);
                QueueChannel results = context.getBean(QueueChannel.class);
                List<Object> sums = IntStream.range(0, 5)
                        .mapToObj(i -> results.receive(Waiting.PATIENCE.toMillis()))
                        .<Object>map(Message::getPayload).toList();
                assertEquals(List.of(45, 45, 45, 45, 45), sums);
                Waiting.waitFor("a lock for each message", () -> server.stat("grants_released") == 50);
                assertSame(context.getBean(LockRegistry.class), context.getBean(FencedLockRegistry.class));
            }
            Waiting.waitFor("closed connections", () -> server.clients().isEmpty());
        }
    }

    @Test
    void the_end_of_the_context_releases_what_is_held() {
        try (TestServer server = TestServer.start()) {
            try (var context = open(server)) {
                FencedLockRegistry registry = context.getBean(FencedLockRegistry.class);
                Example.ship(registry, (order, token) -> assertTrue(token > 0));
                assertTrue(registry.obtain("42").tryLock());
                assertNotNull(server.line("LOCK.INFO orders:42"));
            }
            assertEquals(0, server.stat("grants_tracked"));
            Waiting.waitFor("closed connections", () -> server.clients().isEmpty());
        }
    }

    @Test
    void the_examples_of_the_readme_are_those_of_this_test() {
        Readme.requireExamplesIn("src/test/java/redislock/spring/Example.java");
    }

    private static AnnotationConfigApplicationContext open(TestServer server) {
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        Map<String, Object> properties = Map.of("redis.address", server.address());
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test", properties));
        context.register(Example.LockConfiguration.class, Flow.class);
        context.refresh();
        return context;
    }

    /** Sends groups of the numbers from 0 on, each group in a thread of its own. */
    private static void sendGroups(MessageChannel channel, int groups, int size) {
        IntStream.range(0, groups).forEach(group -> Registries.inThread(() -> IntStream.range(0, size)
                .mapToObj(i -> MessageBuilder.withPayload(i)
                        .setCorrelationId("group" + group).setSequenceNumber(i + 1).setSequenceSize(size).build())
                .forEach(channel::send)));
    }
}
