package redislock;

import java.time.Duration;

/** Clients for the tests whose subject is not the response timeout: they need no quick machine. */
final class Clients {
    private Clients() {
    }

    static LockClient create(String address) {
        return LockClient.builder(address).responseTimeout(Duration.ofMinutes(1)).build();
    }
}
