package redislock.internal.net;

import io.lettuce.core.RedisURI;
import io.lettuce.core.StaticCredentialsProvider;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * The address of a client: one server, the nodes of a cluster, or the sentinels that know the primary. Errors quote no
 * part of it, which may be a password.
 *
 * @param kind     the role of the seeds
 * @param name     without credentials, and the same for every order of the hosts
 * @param seeds    the nodes to ask first
 * @param login    login, database and TLS of the servers; its host is not used
 * @param sentinel the same for sentinels
 * @param primary  what the sentinels call the primary, otherwise empty
 */
public record Address(Kind kind, String name, List<Node> seeds, RedisURI login, RedisURI sentinel, String primary) {
    /** The roles of seeds. */
    public enum Kind { SERVER, CLUSTER, SENTINEL }

    private static final int PORT = 6379;
    private static final int SENTINEL_PORT = 26379;

    /** Reads an address, see {@link redislock.LockClient#builder(String)}. */
    public static Address parse(String text) {
        int colon = text.indexOf("://");
        String scheme = colon < 0 ? "" : text.substring(0, colon).toLowerCase(Locale.ROOT);
        String base = scheme.split("\\+", 2)[0];
        if (!base.equals("redis") && !base.equals("rediss") && !base.equals("valkey") && !base.equals("valkeys")) {
            throw unreadable("its scheme is not known");
        }
        boolean isTls = base.endsWith("ss") || base.equals("valkeys");
        String rest = text.substring(colon + 3);
        return switch (scheme.substring(base.length())) {
            case "" -> server(isTls, rest);
            case "+cluster" -> cluster(isTls, rest);
            case "+sentinel" -> sentinel(isTls, rest);
            default -> throw unreadable("its scheme is not known");
        };
    }

    /** The address of a URI of Lettuce. */
    public static Address of(RedisURI uri) {
        if (uri.getSentinels().isEmpty()) {
            Node node = node(uri);
            return new Address(Kind.SERVER, node.name() + "/" + uri.getDatabase(), List.of(node), uri, uri, "");
        }
        List<Node> seeds = uri.getSentinels().stream().map(Address::node).toList();
        String primary = uri.getSentinelMasterId();
        requirePrimary(primary);
        String name = names(seeds) + "/" + primary + "/" + uri.getDatabase();
        return new Address(Kind.SENTINEL, name, seeds, uri, uri.getSentinels().get(0), primary);
    }

    /** The address of a cluster. */
    public static Address ofCluster(List<RedisURI> uris) {
        if (uris.isEmpty()) {
            throw unreadable("a cluster has at least one node");
        }
        List<Node> seeds = uris.stream().map(Address::node).toList();
        return new Address(Kind.CLUSTER, names(seeds), seeds, uris.get(0), uris.get(0), "");
    }

    private static Node node(RedisURI uri) {
        if (uri.getHost() == null || uri.getHost().isEmpty()) {
            throw unreadable("a host is missing");
        }
        String host = uri.getHost();
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        requireHost(host, true);
        return new Node(host, uri.getPort());
    }

    private static Address server(boolean isTls, String text) {
        String[] parts = hostsAndPath(text);
        requireNoOptions(parts);
        Node node = host(parts[1], PORT);
        RedisURI login = login(isTls, parts[0], database(parts[2]));
        return new Address(Kind.SERVER, node.name() + "/" + login.getDatabase(), List.of(node), login, login, "");
    }

    private static Address cluster(boolean isTls, String text) {
        String[] parts = hostsAndPath(text);
        requireNoOptions(parts);
        if (!parts[2].isEmpty() && database(parts[2]) != 0) {
            throw unreadable("a cluster has the database 0 alone");
        }
        List<Node> seeds = hosts(parts[1], PORT);
        RedisURI login = login(isTls, parts[0], 0);
        return new Address(Kind.CLUSTER, names(seeds), seeds, login, login, "");
    }

    private static Address sentinel(boolean isTls, String text) {
        String[] query = text.split("\\?", 2);
        String[] parts = hostsAndPath(query[0]);
        requireNoOptions(parts);
        String[] path = parts[2].split("/", 2);
        String primary = decoded(path[0]);
        requirePrimary(primary);
        List<Node> seeds = hosts(parts[1], SENTINEL_PORT);
        RedisURI login = login(isTls, parts[0], database(path.length < 2 ? "" : path[1]));
        RedisURI sentinel = login(isTls, sentinelUser(query.length < 2 ? "" : query[1]), 0);
        String name = names(seeds) + "/" + primary + "/" + login.getDatabase();
        return new Address(Kind.SENTINEL, name, seeds, login, sentinel, primary);
    }

    private static String sentinelUser(String query) {
        String user = "";
        String password = "";
        for (String pair : query.split("&")) {
            if (pair.startsWith("sentinel-user=")) {
                user = pair.substring("sentinel-user=".length());
            } else if (pair.startsWith("sentinel-password=")) {
                password = pair.substring("sentinel-password=".length());
            } else if (!pair.isEmpty()) {
                throw unreadable("behind the ? there is only sentinel-user=... and sentinel-password=...");
            }
        }
        return user.isEmpty() && password.isEmpty() ? "" : user + ":" + password;
    }

    /** {@code user:password}, the hosts, and the path. */
    private static String[] hostsAndPath(String text) {
        int at = text.lastIndexOf('@');
        String user = at < 0 ? "" : text.substring(0, at);
        // Some clients take a word without a colon for a user, others for a password.
        if (at >= 0 && !user.contains(":")) {
            throw unreadable("a login is user:password or :password");
        }
        String[] rest = text.substring(at + 1).split("/", 2);
        return new String[] {user, rest[0], rest.length < 2 ? "" : rest[1]};
    }

    private static List<Node> hosts(String text, int defaultPort) {
        List<Node> nodes = new ArrayList<>();
        for (String host : text.split(",", -1)) {
            nodes.add(host(host, defaultPort));
        }
        return List.copyOf(nodes);
    }

    private static Node host(String text, int defaultPort) {
        Node node;
        try {
            node = Node.read(text, defaultPort);
        } catch (IllegalArgumentException wrongPort) {
            throw unreadable(wrongPort.getMessage());
        }
        requireHost(node.host(), text.startsWith("["));
        return node;
    }

    /** Options of other clients may have a secret, and a host stands in messages. */
    private static void requireNoOptions(String[] parts) {
        for (String part : List.of(parts[1], parts[2])) {
            if (part.contains("?") || part.contains("#")) {
                throw unreadable("there is no ? or # behind the hosts, except ?sentinel-user=...&sentinel-password=... "
                        + "of redis+sentinel. The builder has methods for timeouts, TLS and other settings");
            }
        }
    }

    private static void requireHost(String host, boolean mayBeIpv6) {
        if (host.isEmpty()) {
            throw unreadable("a host is missing");
        }
        if (host.contains(":") && !mayBeIpv6) {
            throw unreadable("an IPv6 address stands in brackets, and one colon is before a port");
        }
        // An IPv6 address may have the name of an interface, behind a %.
        String others = host.contains(":") ? "-._:%" : "-._";
        if (!host.codePoints().allMatch(c -> Character.isLetterOrDigit(c) || others.indexOf(c) >= 0)) {
            throw unreadable("a host has letters, digits and -._ only");
        }
    }

    private static void requirePrimary(String name) {
        if (name == null || name.isEmpty()) {
            throw unreadable("the primary's name is missing behind the hosts");
        }
        if (name.codePoints().anyMatch(c -> Character.isISOControl(c) || Character.isWhitespace(c))) {
            throw unreadable("the primary's name has white space or a control character");
        }
    }

    private static int database(String text) {
        if (text.isEmpty()) {
            return 0;
        }
        try {
            int number = Integer.parseInt(text);
            if (number >= 0) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // Refused below.
        }
        throw unreadable("the database is no number");
    }

    private static RedisURI login(boolean isTls, String user, int database) {
        RedisURI.Builder login = RedisURI.builder().withHost("none").withSsl(isTls).withDatabase(database);
        if (!user.isEmpty()) {
            String[] words = user.split(":", 2);
            String name = decoded(words[0]);
            char[] password = decoded(words[1]).toCharArray();
            login.withAuthentication(new StaticCredentialsProvider(name.isEmpty() ? null : name, password));
        }
        return login.build();
    }

    private static String decoded(String text) {
        try {
            return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException malformed) {
            throw unreadable("a % is not followed by two digits");
        }
    }

    private static String names(List<Node> seeds) {
        String[] names = seeds.stream().map(Node::name).toArray(String[]::new);
        Arrays.sort(names);
        return Arrays.stream(names).collect(Collectors.joining(","));
    }

    private static IllegalArgumentException unreadable(String why) {
        return new IllegalArgumentException("no address of a server: " + why + " (redis://host:port, "
                + "redis+cluster://host:port,host:port, redis+sentinel://host:port,host:port/name)");
    }
}
