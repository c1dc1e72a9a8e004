package redislock.internal.net;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

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
            } else {
                encoded.add(bytes(each));
            }
        }
        return encoded;
    }

    private static byte[] bytes(Object argument) {
        return argument instanceof Key key ? key.bytes() : argument instanceof byte[] bytes ? bytes
                : argument.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** The name and the arguments, each byte a character. */
    public List<String> words() {
        List<String> words = before == null ? new ArrayList<>(List.of(name)) : before.words();
        for (Object each : arguments) {
            words.add(new String(bytes(each), StandardCharsets.ISO_8859_1));
        }
        return words;
    }

    /** The name alone: arguments have owners. */
    @Override
    public String toString() {
        return name;
    }
}
