package redislock.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisURI;
import io.lettuce.core.protocol.ProtocolVersion;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The grammar of addresses that all clients share. */
class AddressTest {
    private static Path table() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("clients/addresses.tsv"))) {
            folder = folder.getParent();
        }
        return folder.resolve("clients/addresses.tsv");
    }

    @Test
    void the_table_of_all_clients_is_followed() throws Exception {
        List<String> lines = Files.readAllLines(table());
        int count = 0;
        for (String line : lines) {
            if (line.startsWith("#")) {
                continue;
            }
            String[] columns = line.split("\t", 2);
            count++;
            if (columns[1].startsWith("error: ")) {
                String error = assertThrows(
                        IllegalArgumentException.class, () -> Address.parse(columns[0]), columns[0]).getMessage();
                assertTrue(error.contains(columns[1].substring("error: ".length())), columns[0] + ": " + error);
                assertFalse(error.contains("secret"), error);
            } else {
                assertEquals(columns[1], rendered(Address.parse(columns[0])), columns[0]);
            }
        }
        assertTrue(count > 100, count + " addresses");
    }

    /** The address in the form of the table. */
    private static String rendered(Address address) {
        RedisURI uri = address.uris().get(0);
        List<RedisURI> hosts = uri.getSentinels().isEmpty() ? address.uris() : uri.getSentinels();
        String names = hosts.stream().map(AddressTest::host).collect(Collectors.joining(","));
        String text = (uri.getSocket() != null ? "socket" : address.kind().name().toLowerCase())
                + (uri.isSsl() ? " tls " : " ") + names + " database=" + uri.getDatabase();
        text += login(uri, "user", "password");
        if (address.protocol() != null) {
            text += " protocol=" + (address.protocol() == ProtocolVersion.RESP2 ? 2 : 3);
        }
        if (uri.getSentinelMasterId() != null) {
            text += " primary=" + uri.getSentinelMasterId() + login(hosts.get(0), "sentinel-user", "sentinel-password");
        }
        return text;
    }

    private static String host(RedisURI uri) {
        if (uri.getSocket() != null) {
            return uri.getSocket();
        }
        String host = uri.getHost();
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + uri.getPort();
    }

    private static String login(RedisURI uri, String user, String password) {
        RedisCredentials login = uri.getCredentialsProvider().resolveCredentials().block();
        if (login == null || !login.hasPassword()) {
            return "";
        }
        return (login.hasUsername() ? " " + user + "=" + login.getUsername() : "")
                + " " + password + "=" + new String(login.getPassword());
    }
}
