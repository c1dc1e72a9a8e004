package redislock.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;

/**
 * A proxy before a server's port that hangs, closes connections, and loses or holds back single requests and replies.
 *
 * <p>A request is selected by a text that occurs in its bytes as they are sent, for example {@code LOCK.ACQUIRE} or a
 * key. Words of one command are separated by their lengths there, so the text is one word.
 */
public final class Proxy implements AutoCloseable {
    private static final int CHUNK = 65_536;

    private final ServerSocket listener = Ports.listen();
    private final int server;
    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final AtomicInteger accepted = new AtomicInteger();

    private final AtomicReference<String> swallowed = new AtomicReference<>();
    private final AtomicReference<String> delayed = new AtomicReference<>();
    private final AtomicReference<String> held = new AtomicReference<>();
    private final Set<Line> lines = ConcurrentHashMap.newKeySet();
    private final Gate late = new Gate();
    private final Gate hanging = new Gate();
    private volatile boolean isDelayed;
    private volatile boolean isRefusing;
    private volatile boolean isClosed;

    private Proxy(int server) {
        this.server = server;
        late.open();
        hanging.open();
        start("proxy-accept", this::accept);
    }

    /**
     * Starts a proxy.
     *
     * @param server the port of the server on 127.0.0.1
     * @return the proxy
     */
    public static Proxy before(int server) {
        return new Proxy(server);
    }

    /**
     * The proxy's own port on 127.0.0.1.
     *
     * @return the port
     */
    public int port() {
        return listener.getLocalPort();
    }

    /**
     * The proxy's address for the client.
     *
     * @return {@code redis://127.0.0.1:port}
     */
    public String address() {
        return "redis://127.0.0.1:" + port();
    }

    /**
     * The number of connections that were opened so far.
     *
     * @return the number
     */
    public int accepted() {
        return accepted.get();
    }

    /** Closes all present connections. */
    public void drop() {
        sockets.forEach(Proxy::close);
    }

    /**
     * Refuses new connections: closes each as soon as it is opened.
     *
     * @param isRefusing whether it refuses from now on
     */
    public void refuse(boolean isRefusing) {
        this.isRefusing = isRefusing;
    }

    /**
     * Loses everything on the present connections from now on, also their ends, as a broken path of the network does.
     * New connections work.
     */
    public void cut() {
        lines.forEach(line -> line.isCut = true);
    }

    /**
     * Lets nothing through in either direction, on any connection, without closing one.
     *
     * @param isHanging whether it hangs from now on
     */
    public void hang(boolean isHanging) {
        if (isHanging) {
            hanging.shut();
        } else {
            hanging.open();
        }
    }

    /**
     * Loses the reply to the next such request: the server executes it, and the connection is closed.
     *
     * @param text a text in the request
     */
    public void swallowReplyTo(String text) {
        swallowed.set(text);
    }

    /**
     * Whether the request of {@link #swallowReplyTo} has been sent.
     *
     * @return whether it has
     */
    public boolean hasSwallowed() {
        return swallowed.get() == null;
    }

    /**
     * Holds the next such request back until {@link #letGo}. It reaches the server then, even if the client has closed
     * the connection meanwhile.
     *
     * @param text a text in the request
     */
    public void delay(String text) {
        isDelayed = false;
        late.shut();
        delayed.set(text);
    }

    /**
     * Holds the reply to the next such request, and all later ones of that connection, back until {@link #letGo}.
     *
     * @param text a text in the request
     */
    public void holdReplyTo(String text) {
        isDelayed = false;
        late.shut();
        held.set(text);
    }

    /**
     * Whether the request of {@link #delay} or {@link #holdReplyTo} has been sent.
     *
     * @return whether it has
     */
    public boolean hasDelayed() {
        return isDelayed;
    }

    /** Delivers what is held back. */
    public void letGo() {
        late.open();
    }

    @Override
    public void close() {
        isClosed = true;
        late.open();
        hanging.open();
        try {
            listener.close();
        } catch (IOException ignored) {
            // The listener is gone in any case.
        }
        drop();
    }

    private void accept() {
        while (!isClosed) {
            try {
                Socket client = listener.accept();
                accepted.incrementAndGet();
                if (isRefusing) {
                    close(client);
                } else {
                    carry(client);
                }
            } catch (IOException e) {
                // The listener is closed, or the server is down: the client's connection is closed as the server would.
                continue;
            }
        }
    }

    private void carry(Socket client) throws IOException {
        Socket upstream;
        try {
            upstream = new Socket(InetAddress.getLoopbackAddress(), server);
        } catch (IOException e) {
            close(client);
            throw e;
        }
        client.setTcpNoDelay(true);
        upstream.setTcpNoDelay(true);
        sockets.add(client);
        sockets.add(upstream);
        if (isClosed) {
            drop();
        }
        Line line = new Line();
        lines.add(line);
        start("proxy-requests", () -> pump(line, client, upstream, line::passRequest));
        start("proxy-replies", () -> pump(line, upstream, client, line::passReply));
    }

    /** The state of one connection. */
    private final class Line {
        private volatile boolean isSwallowing;
        private volatile boolean isHolding;
        private volatile boolean isCut;

        boolean passRequest(String request) {
            hanging.await();
            if (isIt(swallowed, request)) {
                isSwallowing = true;
            }
            if (isIt(held, request)) {
                isHolding = true;
                isDelayed = true;
            }
            if (isIt(delayed, request)) {
                isDelayed = true;
                late.await();
            }
            return true;
        }

        boolean passReply(String reply) {
            hanging.await();
            if (isHolding) {
                late.await();
            }
            return !isSwallowing;
        }
    }

    /**
     * Carries one direction until one of the sockets is closed or a chunk does not pass. {@code passes} decides about a
     * chunk, and waits before it if necessary.
     */
    private void pump(Line line, Socket from, Socket to, Predicate<String> passes) {
        byte[] chunk = new byte[CHUNK];
        try {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            for (int length = in.read(chunk); length >= 0; length = in.read(chunk)) {
                if (!passes.test(new String(chunk, 0, length, StandardCharsets.ISO_8859_1))) {
                    break;
                }
                if (!line.isCut) {
                    out.write(chunk, 0, length);
                }
            }
        } catch (IOException e) {
            // One of the sockets is closed: the other follows.
        } finally {
            close(from);
            sockets.remove(from);
            if (!line.isCut) {
                lines.remove(line);
                close(to);
                sockets.remove(to);
            }
        }
    }

    /** Whether this is the selected request, which is selected once only. */
    private static boolean isIt(AtomicReference<String> selected, String request) {
        String text = selected.get();
        return text != null && request.contains(text) && selected.compareAndSet(text, null);
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // The socket is gone in any case.
        }
    }

    private static void start(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
    }
}
