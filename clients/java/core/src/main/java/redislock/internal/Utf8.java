package redislock.internal;

import java.nio.charset.StandardCharsets;
import java.util.Objects;

/** Names as bytes. */
public final class Utf8 {
    private Utf8() {
    }

    /**
     * The bytes of a name; {@code what} names it where it is null.
     *
     * @throws IllegalArgumentException when it has one half of a surrogate pair alone: {@code String.getBytes} writes a
     *     question mark for it, so that different names become the same key
     */
    public static byte[] bytes(String name, String what) {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(Objects.requireNonNull(name, what))) {
            throw new IllegalArgumentException("a name has no half of a surrogate pair alone");
        }
        return name.getBytes(StandardCharsets.UTF_8);
    }
}
