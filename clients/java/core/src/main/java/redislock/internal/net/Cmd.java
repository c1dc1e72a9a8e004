package redislock.internal.net;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;

/** A command with its arguments: immutable, so that it can be sent again. */
public final class Cmd implements ProtocolKeyword {
    private final String name;
    /** The command that this one extends, or null. */
    private final Cmd before;
    private final Object[] arguments;

    private Cmd(String name, Cmd before, Object[] arguments) {
        this.name = name;
        this.before = before;
        this.arguments = arguments;
    }

    /** A key, by whose slot Lettuce finds the node in a cluster. */
    public record Key(byte[] bytes) {}

    /** A command with arguments: keys, bytes, text or numbers. */
    public static Cmd of(String name, Object... arguments) {
        return new Cmd(name, null, arguments);
    }

    /** The same command with further arguments. */
    public Cmd with(Object... more) {
        return new Cmd(name, this, more);
    }

    @Override
    public byte[] getBytes() {
        return name.getBytes(StandardCharsets.US_ASCII);
    }

    CommandArgs<byte[], byte[]> encoded() {
        CommandArgs<byte[], byte[]> encoded =
                before == null ? new CommandArgs<>(ByteArrayCodec.INSTANCE) : before.encoded();
        for (Object each : arguments) {
            if (each instanceof Key key) {
                encoded.addKey(key.bytes());
            } else if (each instanceof byte[] bytes) {
                encoded.add(bytes);
            } else if (each instanceof Long number) {
                encoded.add(number.longValue()); // boxed, it would be an Object, which Lettuce 6 does not take
            } else {
                encoded.add(each.toString().getBytes(StandardCharsets.UTF_8));
            }
        }
        return encoded;
    }

    /** The name alone: arguments have owners. */
    @Override
    public String toString() {
        return name;
    }
}
