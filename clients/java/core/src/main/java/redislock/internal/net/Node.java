package redislock.internal.net;

/**
 * The address of a server.
 *
 * @param host a name or an address
 * @param port its port
 */
public record Node(String host, int port) {
    /** {@code host:port}, as in messages; an IPv6 address in brackets. */
    public String name() {
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    /** Reads {@code host:port}, as in an address or a redirection; the port may be missing where there is a default. */
    static Node read(String text, int defaultPort) {
        int colon = text.lastIndexOf(':');
        boolean hasPort = colon >= 0 && !text.endsWith("]");
        String host = hasPort ? text.substring(0, colon) : text;
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        int port = defaultPort;
        if (hasPort) {
            try {
                port = Integer.parseInt(text.substring(colon + 1));
            } catch (NumberFormatException notANumber) {
                port = 0;
            }
        }
        if (port < 1 || port > 65_535) {
            throw new IllegalArgumentException("the port of a host is missing, or is no number from 1 to 65535");
        }
        return new Node(host, port);
    }
}
