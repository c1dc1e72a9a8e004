package redislock.testing;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A connection that speaks RESP2, for raw commands and for assertions about the data.
 *
 * <p>A reply is a {@link Long}, a {@link String}, null, a {@link List} of these, or a {@link Failure}. A lost
 * connection and a reply that does not come within {@link Waiting#PATIENCE} are an {@link UncheckedIOException}.
 */
public final class Conn implements AutoCloseable {
    /**
     * An error reply.
     *
     * @param text the whole text, without the leading {@code -}
     */
    public record Failure(String text) {
        /**
         * Whether this is the error's first word.
         *
         * @param code the word, for example {@code WRONGTYPE}
         * @return whether the text begins with it
         */
        public boolean is(String code) {
            return text.equals(code) || text.startsWith(code + " ");
        }
    }

    private final Socket socket;
    private final InputStream in;

    /**
     * Connects.
     *
     * @param port the port on 127.0.0.1
     */
    public Conn(int port) {
        try {
            socket = new Socket();
            socket.connect(new InetSocketAddress("127.0.0.1", port), (int) Waiting.PATIENCE.toMillis());
            socket.setTcpNoDelay(true);
            socket.setSoTimeout((int) Waiting.PATIENCE.toMillis());
            in = new BufferedInputStream(socket.getInputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Sets the time that a reply may take from now on.
     *
     * @param limit the time limit
     */
    public void setPatience(Duration limit) {
        try {
            socket.setSoTimeout((int) limit.toMillis());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Sends a command whose words contain no spaces, and returns its reply.
     *
     * @param line the words
     * @return the reply
     */
    public Object line(String line) {
        return call((Object[]) line.split(" "));
    }

    /**
     * Sends a command and returns its reply.
     *
     * @param words byte arrays, or values whose text is sent as UTF-8
     * @return the reply
     */
    public Object call(Object... words) {
        send(words);
        return receive();
    }

    /**
     * Sends a command and returns its reply, which must not be an error.
     *
     * @param words as for {@link #call}
     * @return the reply
     */
    public Object expect(Object... words) {
        Object reply = call(words);
        if (reply instanceof Failure failure) {
            throw new AssertionError(words[0] + " was answered: " + failure.text());
        }
        return reply;
    }

    /**
     * Sends a command whose words contain no spaces, and returns its reply, which must be a number.
     *
     * @param line the words
     * @return the number
     */
    public long number(String line) {
        if (line(line) instanceof Long number) {
            return number;
        }
        throw new AssertionError(line + " was not answered a number");
    }

    /**
     * Sends a command and does not wait for its reply.
     *
     * @param words as for {@link #call}
     */
    public void send(Object... words) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.writeBytes(bytes("*" + words.length + "\r\n"));
        for (Object word : words) {
            byte[] content = word instanceof byte[] raw ? raw : bytes(String.valueOf(word));
            out.writeBytes(bytes("$" + content.length + "\r\n"));
            out.writeBytes(content);
            out.writeBytes(bytes("\r\n"));
        }
        try {
            out.writeTo(socket.getOutputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * The next reply, or the next message of a subscribed connection.
     *
     * @return the reply
     */
    public Object receive() {
        try {
            return read();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * A list of names and values as a map: the form of maps in RESP2, for example of {@code LOCK.INFO}.
     *
     * @param reply the list
     * @return the map
     */
    public static Map<String, Object> map(Object reply) {
        List<?> list = (List<?>) reply;
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i + 1 < list.size(); i += 2) {
            map.put((String) list.get(i), list.get(i + 1));
        }
        return map;
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private Object read() throws IOException {
        int kind = in.read();
        String head = readLine();
        return switch (kind) {
            case '+' -> head;
            case '-' -> new Failure(head);
            case ':' -> Long.valueOf(head);
            case '$' -> readBulk(Integer.parseInt(head));
            case '*' -> readList(Integer.parseInt(head));
            default -> throw new EOFException("the server closed the connection");
        };
    }

    private String readBulk(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        byte[] content = in.readNBytes(length + 2);
        return new String(content, 0, length, StandardCharsets.UTF_8);
    }

    private List<Object> readList(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        List<Object> list = new ArrayList<>(length);
        for (int i = 0; i < length; i++) {
            list.add(read());
        }
        return list;
    }

    private String readLine() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int c = in.read(); c >= 0 && c != '\r'; c = in.read()) {
            line.write(c);
        }
        in.read();
        return line.toString(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
