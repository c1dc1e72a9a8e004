package redislock;

import java.nio.charset.StandardCharsets;

/**
 * A lock that could not be released in the background: it ends with its lease, or with its connection. Its text does
 * not show the owner.
 *
 * @param key   the key
 * @param owner the owner, which is the credential of the lock
 * @param error why the last attempt failed
 */
public record Unreleased(byte[] key, byte[] owner, RuntimeException error) {
    @Override
    public String toString() {
        return new String(key, StandardCharsets.UTF_8) + ": " + error.getMessage();
    }
}
