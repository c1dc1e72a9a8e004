package redislock.internal.net;

import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A command with its arguments: immutable, so that it can be sent again. */
public final class Cmd {
    private final Word word;
    private final byte[][] arguments;

    private Cmd(Word word, byte[][] arguments) {
        this.word = word;
        this.arguments = arguments;
    }

    /** The name of a command, for Lettuce. */
    private record Word(String text, byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    /** A command with arguments: bytes, text or numbers. */
    public static Cmd of(String name, Object... arguments) {
        Word word = new Word(name, name.getBytes(StandardCharsets.US_ASCII));
        return new Cmd(word, new byte[0][]).with(arguments);
    }

    /** The same command with further arguments. */
    public Cmd with(Object... more) {
        byte[][] all = Arrays.copyOf(arguments, arguments.length + more.length);
        for (int i = 0; i < more.length; i++) {
            all[arguments.length + i] = bytes(more[i]);
        }
        return new Cmd(word, all);
    }

    private static byte[] bytes(Object argument) {
        if (argument instanceof byte[] bytes) {
            return bytes;
        }
        return argument.toString().getBytes(StandardCharsets.UTF_8);
    }

    ProtocolKeyword word() {
        return word;
    }

    byte[][] arguments() {
        return arguments;
    }

    /** The name alone: arguments have owners. */
    @Override
    public String toString() {
        return word.text();
    }
}
