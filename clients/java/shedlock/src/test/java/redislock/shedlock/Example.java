package redislock.shedlock;

import net.javacrumbs.shedlock.core.LockProvider;
import redislock.LockClient;

/** The examples of README.md. */
final class Example {
    LockClient lockClient(String address) {
        return LockClient.create(address);
    }

    LockProvider lockProvider(LockClient client) {
        return new FencedLockProvider(client, "production");
    }
}
