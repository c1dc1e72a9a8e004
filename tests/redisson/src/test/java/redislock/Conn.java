package redislock;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A plain connection that speaks RESP2, for {@code LOCK.*} and for looking at the data.
 *
 * <p>Replies are a {@link Long}, a {@link String}, null, a {@link List} of these, or a {@link
 * Failure}.
 */
final class Conn implements AutoCloseable {
  /** An error reply. */
  record Failure(String text) {
    boolean is(String code) {
      return text.startsWith(code + " ");
    }
  }

  private final Socket socket;
  private final InputStream in;

  /** Connects; every reply must then come in time. */
  Conn(int port) {
    try {
      socket = new Socket("127.0.0.1", port);
      socket.setTcpNoDelay(true);
      socket.setSoTimeout((int) Until.PATIENCE.toMillis());
      in = new BufferedInputStream(socket.getInputStream());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** From now on a reply may take this long: for who waits long behind others. */
  void bePatient(int seconds) {
    try {
      socket.setSoTimeout(seconds * 1_000);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Sends a command whose words have no spaces, and returns its reply. */
  Object line(String line) {
    return call(line.split(" "));
  }

  /** Sends a command and returns its reply. */
  Object call(String... words) {
    send(words);
    return receive();
  }

  /** Sends a command and does not wait for its reply. */
  void sendLine(String line) {
    send(line.split(" "));
  }

  /** Sends a command and does not wait for its reply. */
  void send(String... words) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(bytes("*" + words.length + "\r\n"));
    for (String word : words) {
      byte[] content = bytes(word);
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

  /** The next reply. */
  Object receive() {
    try {
      return read();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The reply to a command that answers a number. */
  long number(String line) {
    Object reply = line(line);
    if (reply instanceof Long number) {
      return number;
    }
    throw new AssertionError(line + " answered " + reply);
  }

  /** A list as a map: what {@code LOCK.INFO} answers in RESP2. */
  static Object field(Object reply, String name) {
    List<?> list = (List<?>) reply;
    for (int i = 0; i + 1 < list.size(); i += 2) {
      if (name.equals(list.get(i))) {
        return list.get(i + 1);
      }
    }
    throw new AssertionError("no " + name + " in " + reply);
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
    switch (kind) {
      case '+':
        return head;
      case '-':
        return new Failure(head);
      case ':':
        return Long.valueOf(head);
      case '$':
        return readBulk(Integer.parseInt(head));
      case '*':
        return readList(Integer.parseInt(head));
      default:
        throw new EOFException("the server closed the connection: " + kind + head);
    }
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
    StringBuilder line = new StringBuilder();
    for (int c = in.read(); c >= 0 && c != '\r'; c = in.read()) {
      line.append((char) c);
    }
    in.read();
    return line.toString();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
