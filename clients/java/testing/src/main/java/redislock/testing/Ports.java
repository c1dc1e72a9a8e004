package redislock.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Ports of 127.0.0.1 that no process listens on. They are below the range from which the kernel takes the local ports
 * of connections, so a server that restarts finds its port free.
 */
final class Ports {
    /** The distance between the port of a cluster's node and the port of its bus, the server's default. */
    static final int BUS_OFFSET = 10_000;

    private static final int FIRST = 11_000;
    private static final int AFTER_LAST = 22_000;
    private static final int TRIES = 1_000;

    private Ports() {}

    /** A port that is free at the moment, as is the port of the bus that belongs to it. */
    static int free() {
        for (int i = 0; i < TRIES; i++) {
            int port = ThreadLocalRandom.current().nextInt(FIRST, AFTER_LAST);
            if (isFree(port) && isFree(port + BUS_OFFSET)) {
                return port;
            }
        }
        throw new AssertionError("no free port");
    }

    /** A listening socket on such a port. */
    static ServerSocket listen() {
        for (int i = 0; i < TRIES; i++) {
            try {
                return new ServerSocket(free(), 50, InetAddress.getLoopbackAddress());
            } catch (IOException taken) {
                continue;
            }
        }
        throw new AssertionError("no free port");
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            return socket.isBound();
        } catch (IOException taken) {
            return false;
        }
    }
}
