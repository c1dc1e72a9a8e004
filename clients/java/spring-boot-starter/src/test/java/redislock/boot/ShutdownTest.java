package redislock.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.SmartLifecycle;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import redislock.FencedLock;
import redislock.Guard;
import redislock.LockClient;
import redislock.LockOptions;
import redislock.testing.TestServer;
import redislock.testing.Waiting;

/** Applications in processes of their own that are ended by a signal. */
@Timeout(240)
class ShutdownTest {
    /** Holds by a thread, a guard, a session and an election, and waits for another lock. */
    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {
        public static void main(String[] arguments) throws Exception {
            SpringApplication boot = new SpringApplication(Application.class);
            boot.setWebApplicationType(WebApplicationType.NONE);
            boot.setBannerMode(Banner.Mode.OFF);
            ConfigurableApplicationContext context = boot.run(arguments);
            LockClient client = context.getBean(LockClient.class);
            client.lock("thread").lock();
            Guard guard = client.lock("guard").acquire();
            client.lock("session", LockOptions.defaults().session()).acquire();
            Guard leader = client.election("leader").campaign("here");
            client.lock("other").acquireAsync(null);
            System.out.println("held " + guard.token() + " " + leader.token());
            Thread.currentThread().join();
        }

        /** As the web server, which ends its requests in this phase. */
        @Bean
        SmartLifecycle webServer(LockClient client) {
            return new SmartLifecycle() {
                private volatile boolean isRunning;

                @Override
                public void start() {
                    isRunning = true;
                }

                @Override
                public void stop() {
                    FencedLock request = client.lock("request");
                    request.lock();
                    System.out.println("the last request has locked with " + request.token());
                    request.unlock();
                    isRunning = false;
                }

                @Override
                public boolean isRunning() {
                    return isRunning;
                }

                @Override
                public int getPhase() {
                    return SmartLifecycle.DEFAULT_PHASE - 2048;
                }
            };
        }
    }

    private static void assertEnds(TestServer server, Path directory, String... arguments) throws Exception {
        server.line("LOCK.ACQUIRE other another PX 600000");
        Path output = directory.resolve("output");
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java",
                "-Xmx128m", "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                Application.class.getName(), "--management.defaults.metrics.export.enabled=false"));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output.toFile()).start();
        try {
            Waiting.waitFor("the holds", () -> !process.isAlive() || text(output).contains("held "));
            Waiting.waitFor("the wait", () -> !process.isAlive() || server.stat("tickets") == 1);
            assertTrue(process.isAlive(), () -> text(output));
            long start = System.nanoTime();
            process.destroy();
            assertTrue(process.waitFor(60, TimeUnit.SECONDS), () -> text(output));
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            String text = text(output);
            assertTrue(text.contains("INFO"), "the log is there\n" + text);
            for (String key : List.of("thread", "guard", "session", "leader", "request")) {
                assertEquals(0L, server.call("EXISTS", key), key + "\n" + text);
            }
            assertEquals(0, server.stat("tickets"), text);
            assertTrue(text.contains("the last request has locked"), text);
            String end = text.substring(text.indexOf("held "));
            assertFalse(Pattern.compile("(?i)\\bwarn|\\berror|severe|exception|\\bat ").matcher(end).find(), end);
            // The response timeout is a minute: nothing waits for it.
            assertTrue(millis < 30_000, millis + " ms\n" + text);
        } finally {
            process.destroyForcibly();
        }
    }

    private static String text(Path file) {
        try {
            return Files.readString(file, StandardCharsets.UTF_8);
        } catch (IOException absent) {
            return "";
        }
    }

    @Test
    void an_application_releases_its_locks_before_its_connection_factory_stops(@TempDir Path directory)
            throws Exception {
        try (TestServer server = TestServer.start()) {
            assertEnds(server, directory, "--spring.data.redis.host=127.0.0.1",
                    "--spring.data.redis.port=" + server.port(), "--redis-lock.response-timeout=60s");
        }
    }

    @Test
    void an_application_with_an_address_releases_its_locks(@TempDir Path directory) throws Exception {
        try (TestServer server = TestServer.start()) {
            assertEnds(server, directory, "--redis-lock.address=" + server.address(),
                    "--redis-lock.response-timeout=60s");
        }
    }
}
