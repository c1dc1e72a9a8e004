package redislock.internal.net;

import io.lettuce.core.RedisURI;
import io.lettuce.core.StaticCredentialsProvider;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The address of a client: one server, the nodes of a cluster, or the sentinels that know the primary. The grammar and
 * the texts of its errors are those of {@code clients/addresses.tsv}. Errors quote no part of an address, which may be
 * a password.
 *
 * @param kind     what the address names
 * @param name     without credentials, and the same for every order of the hosts
 * @param uris     the server, the sentinels (in one URI), or the first nodes of a cluster
 * @param protocol the version that the address demands, or null
 */
public record Address(Kind kind, String name, List<RedisURI> uris, ProtocolVersion protocol) {
    /** What an address names. */
    public enum Kind { SERVER, CLUSTER, SENTINEL }

    private static final int PORT = 6379;
    private static final int SENTINEL_PORT = 26379;
    private static final Set<String> SOCKETS = Set.of("unix", "redis+unix", "valkey+unix");
    private static final String SENTINEL_USER = "sentinel-user";
    private static final String SENTINEL_PASSWORD = "sentinel-password";

    private record Node(String host, int port) {
        String name() {
            return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }
    }

    /** Reads an address, see {@link redislock.LockClient#builder(String)}. */
    public static Address parse(String text) {
        int colon = text.indexOf("://");
        String scheme = colon < 0 ? "redis" : text.substring(0, colon).toLowerCase(Locale.ROOT);
        String rest = colon < 0 ? text : text.substring(colon + 3);
        if (SOCKETS.contains(scheme)) {
            return socket(rest);
        }
        String base = scheme.split("\\+", 2)[0];
        Kind kind = switch (scheme.substring(base.length())) {
            case "" -> Kind.SERVER;
            case "+cluster" -> Kind.CLUSTER;
            case "+sentinel" -> Kind.SENTINEL;
            default -> throw unreadable("its scheme is not known");
        };
        if (!Set.of("redis", "rediss", "valkey", "valkeys").contains(base)) {
            throw unreadable("its scheme is not known");
        }
        int at = rest.lastIndexOf('@');
        String[] login = login(at < 0 ? null : rest.substring(0, at));
        String[] query = query(rest.substring(at + 1));
        String[] parts = query[0].split("/", 2);
        return new Reader(kind, base.endsWith("ss") || base.equals("valkeys"), login, options(kind, query[1]))
                .read(parts[0], parts.length < 2 ? "" : parts[1]);
    }

    private static Address socket(String text) {
        int slash = text.indexOf('/');
        int at = text.substring(0, slash < 0 ? text.length() : slash).lastIndexOf('@');
        String[] login = login(at < 0 ? null : text.substring(0, at));
        String[] query = query(text.substring(at + 1));
        if (!query[0].startsWith("/")) {
            throw unreadable("the path of a socket begins with /");
        }
        String path = decoded(query[0]);
        Map<String, String> options = options(Kind.SERVER, query[1]);
        int database = database("", options);
        RedisURI uri = withLogin(RedisURI.Builder.socket(path), login).withDatabase(database).build();
        return new Address(Kind.SERVER, path + "/" + database, List.of(uri), protocol(options));
    }

    /** Reads the part behind the login. */
    private record Reader(Kind kind, boolean isTls, String[] login, Map<String, String> options) {
        Address read(String hosts, String path) {
            return switch (kind) {
                case SERVER -> server(host(hosts, PORT), database(path, options));
                case CLUSTER -> cluster(nodes(hosts, PORT), database(path, options));
                case SENTINEL -> sentinel(nodes(hosts, SENTINEL_PORT), path.split("/", 2));
            };
        }

        private Address server(Node node, int database) {
            return new Address(kind, node.name() + "/" + database, List.of(uri(node, login, database)),
                    protocol(options));
        }

        private Address cluster(List<Node> nodes, int database) {
            if (database != 0) {
                throw unreadable("a cluster has the database 0 alone");
            }
            List<RedisURI> uris = nodes.stream().map(node -> uri(node, login, 0)).toList();
            return new Address(kind, names(nodes), uris, protocol(options));
        }

        private Address sentinel(List<Node> nodes, String[] path) {
            String primary = decoded(path[0]);
            requirePrimary(primary);
            int database = database(path.length < 2 ? "" : path[1], options);
            String user = options.get(SENTINEL_USER);
            String password = options.get(SENTINEL_PASSWORD);
            String[] own = user == null && password == null ? null
                    : new String[] {user == null ? "" : user, password == null ? "" : password};
            RedisURI.Builder uri = withLogin(RedisURI.builder(), login)
                    .withSentinelMasterId(primary).withDatabase(database).withSsl(isTls);
            nodes.forEach(node -> uri.withSentinel(uri(node, own, 0)));
            return new Address(kind, names(nodes) + "/" + primary + "/" + database, List.of(uri.build()),
                    protocol(options));
        }

        private RedisURI uri(Node node, String[] user, int database) {
            return withLogin(RedisURI.builder().withHost(node.host()).withPort(node.port()), user)
                    .withSsl(isTls).withDatabase(database).build();
        }
    }

    /** The server in messages: {@code host:port}, otherwise the name. */
    String server() {
        return kind == Kind.SERVER ? name.substring(0, name.lastIndexOf('/')) : name;
    }

    private static List<Node> nodes(String text, int defaultPort) {
        List<Node> nodes = new ArrayList<>();
        for (String host : text.split(",", -1)) {
            nodes.add(host(host, defaultPort));
        }
        nodes.sort((one, other) -> one.name().compareTo(other.name()));
        return nodes;
    }

    private static String names(List<Node> nodes) {
        return nodes.stream().map(Node::name).sorted().collect(Collectors.joining(","));
    }

    private static Node host(String text, int defaultPort) {
        boolean hasBrackets = text.startsWith("[");
        int end = hasBrackets ? text.indexOf(']') : text.indexOf(':');
        String host = end < 0 ? text : text.substring(hasBrackets ? 1 : 0, end);
        String port = end < 0 ? "" : text.substring(hasBrackets ? end + 1 : end);
        boolean isIpv6 = host.contains(":");
        if (port.lastIndexOf(':') > 0 || hasBrackets && (end < 0 || !port.isEmpty() && !port.startsWith(":")
                || !isIpv6 && !host.isEmpty())) {
            throw unreadable("an IPv6 address stands in brackets");
        }
        if (host.isEmpty()) {
            throw unreadable("a host is missing");
        }
        // An IPv6 address may have the name of an interface, behind a %.
        String others = isIpv6 ? "-._:%" : "-._";
        if (!host.codePoints().allMatch(c -> Character.isLetterOrDigit(c) || others.indexOf(c) >= 0)) {
            throw unreadable("a host has letters, digits and -._ only");
        }
        int number = port.isEmpty() ? defaultPort : number(port.substring(1));
        if (number < 1 || number > 65_535) {
            throw unreadable("a port is a number from 1 to 65535");
        }
        return new Node(host, number);
    }

    /** The decoded user and password; null: none. */
    private static String[] login(String text) {
        if (text == null) {
            return null;
        }
        if (text.chars().anyMatch(c -> "/?#[]".indexOf(c) >= 0)) {
            throw unreadable("in a login / ? # [ ] are written %2F %3F %23 %5B %5D");
        }
        String[] words = text.split(":", 2);
        // Some clients take a word without a colon for a user, others for a password.
        if (words.length < 2) {
            throw unreadable("a login is user:password or :password");
        }
        return new String[] {decoded(words[0]), decoded(words[1])};
    }

    /** The part before the ?, and the one behind it. */
    private static String[] query(String text) {
        if (text.contains("#")) {
            throw unreadable("a # is written %23");
        }
        String[] parts = text.split("\\?", 2);
        return new String[] {parts[0], parts.length < 2 ? "" : parts[1]};
    }

    private static Map<String, String> options(Kind kind, String query) {
        Set<String> known = kind == Kind.SENTINEL
                ? Set.of("db", "protocol", SENTINEL_USER, SENTINEL_PASSWORD) : Set.of("db", "protocol");
        Map<String, String> options = new HashMap<>();
        for (String pair : query.isEmpty() ? new String[0] : query.split("&", -1)) {
            String[] words = pair.split("=", 2);
            if (words.length < 2 || words[1].isEmpty() || !known.contains(words[0])) {
                throw unreadable("behind the ? is an option that is not known");
            }
            if (options.put(words[0], decoded(words[1])) != null) {
                throw unreadable(words[0].equals("db") ? "the database is given twice"
                        : "behind the ? is an option that is not known, or given twice");
            }
        }
        return options;
    }

    private static int database(String path, Map<String, String> options) {
        String option = options.get("db");
        int ofPath = path.isEmpty() ? 0 : number(path);
        int ofOption = option == null ? ofPath : number(option);
        if (ofPath < 0 || ofOption < 0) {
            throw unreadable("the database is a number");
        }
        if (!path.isEmpty() && ofPath != ofOption) {
            throw unreadable("the database is given twice");
        }
        return ofOption;
    }

    private static ProtocolVersion protocol(Map<String, String> options) {
        return switch (options.getOrDefault("protocol", "")) {
            case "" -> null;
            case "2" -> ProtocolVersion.RESP2;
            case "3" -> ProtocolVersion.RESP3;
            default -> throw unreadable("the protocol is 2 or 3");
        };
    }

    /** Less than zero for a text that is no number. */
    private static int number(String text) {
        return text.matches("[0-9]{1,9}") ? Integer.parseInt(text) : -1;
    }

    private static void requirePrimary(String name) {
        if (name == null || name.isEmpty()) {
            throw unreadable("the primary's name is missing behind the hosts");
        }
        if (name.codePoints().anyMatch(c -> Character.isISOControl(c) || Character.isWhitespace(c))) {
            throw unreadable("the primary's name has white space or a control character");
        }
    }

    private static RedisURI.Builder withLogin(RedisURI.Builder uri, String[] login) {
        if (login != null) {
            String user = login[0].isEmpty() ? null : login[0];
            uri.withAuthentication(new StaticCredentialsProvider(user, login[1].toCharArray()));
        }
        return uri;
    }

    private static String decoded(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < encoded.length; i++) {
            if (encoded[i] != '%') {
                bytes.write(encoded[i]);
                continue;
            }
            String digits = new String(encoded, i + 1, Math.min(2, encoded.length - i - 1), StandardCharsets.UTF_8);
            if (!digits.matches("[0-9A-Fa-f]{2}")) {
                throw unreadable("a % is not followed by two digits");
            }
            bytes.write(Integer.parseInt(digits, 16));
            i += 2;
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }

    private static IllegalArgumentException unreadable(String why) {
        return new IllegalArgumentException("no address of a server: " + why + " (redis://host:port, "
                + "redis+cluster://host:port,host:port, redis+sentinel://host:port,host:port/name, unix:///path)");
    }
}
