package redislock.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisURI;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Addresses that are read, and those that are refused. */
class AddressTest {
    @Test
    void the_name_has_no_credentials_and_a_fixed_order_of_hosts() {
        assertEquals("h:7000/3", name("redis://u:secret@h:7000/3"));
        assertEquals("localhost:6379/0", name("valkeys://localhost"));
        assertEquals("a:1,b_2.c-d:2", name("redis+cluster://u:p@b_2.c-d:2,a:1"));
        assertEquals("a:26379,b:2/main/5", name("rediss+sentinel://u:p@b:2,a/main/5?sentinel-password=x"));
        assertEquals("[::1]:6379/0", name("redis://[::1]"));
        assertEquals("[fe80::1%eth0]:7/0", name("redis://[fe80::1%eth0]:7"));
        assertEquals("[::1]:7/0", Address.of(RedisURI.create("redis://[::1]:7")).name());
        assertEquals("h\u00f4te:6379/0", name("redis://h\u00f4te"));
    }

    @Test
    void options_of_other_clients_are_refused() {
        for (String address : List.of("redis://localhost?password=secret", "redis://localhost:1?password=secret",
                "redis://localhost/0?timeout=secret", "redis://localhost#secret", "redis://u:p@localhost/0#secret",
                "redis+cluster://a:1,b:2?password=secret", "redis+cluster://a,b#secret",
                "redis+sentinel://a/main#secret")) {
            assertTrue(refusal(address).contains("there is no ? or #"), refusal(address));
        }
        assertTrue(refusal("redis+sentinel://a/main?password=secret").contains("sentinel-user"));
    }

    @Test
    void hosts_have_no_other_characters() {
        for (String host : List.of("local host", "h\t", "h\n", "h\u0000", "h&password=secret", "h%20", "'h'", "h\u2028",
                "::1", "fe80::1:7", "a:b:1", "[::1", "[]", "a]", "", ",", "a,", ",a", " ")) {
            refusal("redis+cluster://" + host);
            refusal("redis+sentinel://" + host + "/main");
            if (!host.contains(",")) {
                refusal("redis://" + host);
            }
        }
        RedisURI uri = RedisURI.builder().withHost("localhost?password=secret").withPort(1).build();
        assertHidden(assertThrows(IllegalArgumentException.class, () -> Address.of(uri)));
        assertHidden(assertThrows(IllegalArgumentException.class, () -> Address.ofCluster(List.of(uri))));
        refusal("redis+sentinel://h/main%0asecret");
    }

    @Test
    void a_login_has_a_colon() {
        for (String scheme : List.of("redis", "redis+cluster")) {
            assertTrue(refusal(scheme + "://secret@h").contains("a login is user:password or :password"));
        }
        refusal("redis+sentinel://secret@h/main");
        refusal("redis://@h");
        assertLogin(null, "one", Address.parse("redis://:one@h").login());
        assertLogin("app", "", Address.parse("redis://app:@h").login());
        assertLogin("a@p", "o:n/e?#", Address.parse("redis://a%40p:o:n/e?#@h").login());
        Address sentinels = Address.parse("redis+sentinel://app:one@h/main?sentinel-user=s&sentinel-password=two");
        assertLogin("app", "one", sentinels.login());
        assertLogin("s", "two", sentinels.sentinel());
        assertLogin("s", "", Address.parse("redis+sentinel://h/main?sentinel-user=s").sentinel());
    }

    @Test
    void a_database_is_a_number() {
        for (String number : List.of("-1", "x", "4294967295", "99999999999", "1/")) {
            refusal("redis://h/" + number);
            refusal("redis+sentinel://h/main/" + number);
        }
    }

    private static String name(String address) {
        return Address.parse(address).name();
    }

    private static String refusal(String address) {
        return assertHidden(assertThrows(IllegalArgumentException.class, () -> Address.parse(address), address));
    }

    private static String assertHidden(IllegalArgumentException error) {
        String text = error.getMessage();
        assertTrue(text.startsWith("no address of a server: "), text);
        assertFalse(text.contains("secret"), text);
        assertNull(error.getCause());
        return text;
    }

    private static void assertLogin(String user, String password, RedisURI uri) {
        RedisCredentials credentials = uri.getCredentialsProvider().resolveCredentials().block();
        assertEquals(user, credentials.getUsername());
        assertEquals(password, String.valueOf(credentials.getPassword()));
    }
}
