package redislock.internal.net;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Any reply as objects: null, {@code Long}, {@code byte[]}, {@code String} for a simple string, {@code List} for an
 * array. A map of RESP3 is the list of its keys and values, as in RESP2.
 */
final class ReplyOutput extends CommandOutput<byte[], byte[], Object> {
    /** An array that is not full, within another one or null. */
    private record Open(List<Object> list, int size, Open outer) {}

    private static final String QUEUED = "QUEUED";

    private Open open;
    private boolean isSet;

    ReplyOutput() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    @Override
    public void set(ByteBuffer bytes) {
        add(bytes == null ? null : copy(bytes));
    }

    @Override
    public void setSingle(ByteBuffer bytes) {
        add(bytes == null ? null : StandardCharsets.UTF_8.decode(bytes).toString());
    }

    @Override
    public void set(long integer) {
        add(integer);
    }

    @Override
    public void set(double number) {
        add(Double.toString(number).getBytes(StandardCharsets.US_ASCII));
    }

    @Override
    public void set(boolean value) {
        add(value ? 1L : 0L);
    }

    /**
     * Lettuce withholds the simple string {@code QUEUED}, which it takes for the reply to a command of a transaction: a
     * reply without a value is that one. (Nil is a value, null.)
     */
    @Override
    public void complete(int depth) {
        if (depth == 0 && !isSet && !hasError()) {
            output = QUEUED;
        }
    }

    @Override
    public void multi(int count) {
        if (count < 0) {
            add(null);
            return;
        }
        isSet = true;
        List<Object> list = new ArrayList<>(Math.min(count, 1_024));
        if (count == 0) {
            add(list);
        } else {
            open = new Open(list, count, open);
        }
    }

    /** Adds a value to the innermost array, and closes the arrays that are full. */
    private void add(Object value) {
        isSet = true;
        Object complete = value;
        while (open != null) {
            open.list().add(complete);
            if (open.list().size() < open.size()) {
                return;
            }
            complete = open.list();
            open = open.outer();
        }
        output = complete;
    }

    private static byte[] copy(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return copy;
    }
}
