package org.springframework.integration.redis;

import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redislock.testing.TestServer;

/** Takes the place of Spring's interface, whose server runs in a container: a server with the module. */
public interface RedisContainerTest {
    /** It ends with the process. */
    TestServer SERVER = TestServer.start();

    static LettuceConnectionFactory connectionFactory() {
        LettuceConnectionFactory factory =
                new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", SERVER.port()));
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }
}
