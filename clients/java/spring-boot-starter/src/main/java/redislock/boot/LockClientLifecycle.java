package redislock.boot;

import java.util.Objects;
import org.springframework.context.SmartLifecycle;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redislock.LockClient;

/**
 * Closes a client at the end of the application: before the connection factory whose client of Lettuce it uses, and
 * after the web server and all other beans of a higher phase, which may still need their locks. A bean is destroyed
 * after the factory has stopped, and could release nothing any more.
 */
public final class LockClientLifecycle implements SmartLifecycle {
    private final LockClient client;
    private final LettuceConnectionFactory factory;
    private volatile boolean isRunning;

    /**
     * The end of a client.
     *
     * @param client  the client
     * @param factory the connection factory of the client
     */
    public LockClientLifecycle(LockClient client, LettuceConnectionFactory factory) {
        this.client = Objects.requireNonNull(client, "client");
        this.factory = Objects.requireNonNull(factory, "factory");
    }

    @Override
    public void start() {
        isRunning = true;
    }

    @Override
    public void stop() {
        isRunning = false;
        client.close();
    }

    @Override
    public boolean isRunning() {
        return isRunning;
    }

    /** Higher phases stop first. Of equal ones, what depends on the factory does. */
    @Override
    public int getPhase() {
        return Math.max(factory.getPhase(), factory.getPhase() + 1);
    }
}
