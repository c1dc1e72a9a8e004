package redislock.spring;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redislock.LockClient;

/** The examples of README.md. */
final class Example {
    private Example() {}

    @Configuration
    static class LockConfiguration {
        @Bean
        LockClient lockClient(@Value("${redis.address}") String address) {
            return LockClient.create(address);
        }

        @Bean
        FencedLockRegistry lockRegistry(LockClient client) {
            return new FencedLockRegistry(client, "orders");
        }
    }

    static void ship(FencedLockRegistry registry, Shop shop) {
        FencedDistributedLock lock = registry.obtain("42");
        lock.lock();
        try {
            shop.ship(42, lock.token());
        } finally {
            lock.unlock();
        }
    }

    /** A resource that refuses lower tokens than it has seen. */
    interface Shop {
        void ship(int order, long token);
    }
}
