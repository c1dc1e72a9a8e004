package redislock.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import java.lang.reflect.Method;
import java.net.URL;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The settings of Lettuce, in all its versions that the client supports. */
class ConnectorTest {
    @Test
    void lettuce_has_the_version_that_is_to_be_tested() {
        String version = System.getProperty("tested.lettuce.version");
        assumeTrue(version != null, "that of the compiler");
        URL jar = RedisClient.class.getProtectionDomain().getCodeSource().getLocation();
        assertTrue(jar.getPath().endsWith("lettuce-core-" + version + ".jar"), jar.getPath());
    }

    @Test
    void lettuce_neither_reconnects_nor_follows_notices_of_maintenance() throws ReflectiveOperationException {
        ClientOptions options = Connector.options(Duration.ofSeconds(1), null);
        assertFalse(options.isAutoReconnect());
        List<String> getters = Stream.of(ClientOptions.class.getMethods()).map(Method::getName).toList();
        assertEquals(Connector.HAS_MAINTENANCE_NOTICES, getters.contains("getMaintNotificationsConfig"));
        if (Connector.HAS_MAINTENANCE_NOTICES) {
            Object notices = ClientOptions.class.getMethod("getMaintNotificationsConfig").invoke(options);
            Method isOn = notices.getClass().getMethod("maintNotificationsEnabled");
            assertEquals(false, isOn.invoke(notices));
        }
    }
}
