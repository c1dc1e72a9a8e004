package redislock.boot;

import java.time.Duration;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * The settings of the beans.
 *
 * @param address         of a server, as of {@link redislock.LockClient#builder(String)}; by default the application's
 *     own connection factory is used
 * @param responseTimeout of the client, 5 s by default
 * @param prefix          of the keys of the registry and of the health check, {@code locks} by default
 */
@ConfigurationProperties("redis-lock")
public record RedisLockProperties(@Nullable String address, Duration responseTimeout, String prefix) {
    /**
     * The settings with their defaults.
     *
     * @param address         null: the application's connection factory
     * @param responseTimeout null: 5 s
     * @param prefix          null: {@code locks}
     */
    public RedisLockProperties(
            @Nullable String address, @Nullable Duration responseTimeout, @Nullable String prefix) {
        this.address = address;
        this.responseTimeout = responseTimeout == null ? Duration.ofSeconds(5) : responseTimeout;
        this.prefix = prefix == null ? "locks" : prefix;
    }
}
