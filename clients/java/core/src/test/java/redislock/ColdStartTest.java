package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import redislock.testing.Certificates;
import redislock.testing.TestServer;

/** The first request of a process, in processes of their own. */
@Timeout(300)
class ColdStartTest {
    /** A program whose first request is bounded. */
    static final class Program {
        public static void main(String[] arguments) {
            LockClient.Builder builder = LockClient.builder(arguments[0]);
            builder.responseTimeout(Duration.ofSeconds(Long.parseLong(arguments[1])));
            if (arguments.length > 2) {
                builder.sslOptions(io.lettuce.core.SslOptions.builder().trustManager(new File(arguments[2])).build());
            }
            try (LockClient client = builder.build()) {
                long start = System.nanoTime();
                String outcome;
                try {
                    outcome = client.lock("k").tryLock() ? "granted" : "refused";
                } catch (LockException error) {
                    outcome = error.getClass().getSimpleName();
                }
                System.out.println(outcome + " " + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
            }
        }
    }

    /** A program whose first contended wait is a short one. */
    static final class Contended {
        public static void main(String[] arguments) throws Exception {
            try (LockClient client =
                    LockClient.builder(arguments[0]).responseTimeout(Duration.ofMinutes(1)).build()) {
                FencedLock lock = client.lock("k");
                for (int i = 0; i < 20; i++) {
                    lock.lock();
                    lock.unlock();
                }
                lock.lock();
                Thread other = new Thread(() -> {
                    try {
                        System.out.println(lock.tryLock(200, TimeUnit.MILLISECONDS));
                    } catch (Exception error) {
                        System.out.println(error);
                    }
                });
                other.start();
                other.join();
                lock.unlock();
            }
        }
    }

    @Test
    void the_first_contended_wait_of_a_process_is_refused() throws Exception {
        try (TestServer server = TestServer.start()) {
            for (int i = 0; i < 3; i++) {
                assertEquals("false", run(Contended.class, server.address())[0]);
            }
        }
    }

    private static String[] run(String... arguments) throws Exception {
        return run(Program.class, arguments);
    }

    /** Its outcome, and the milliseconds of the request. */
    private static String[] run(Class<?> program, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-Xmx64m", "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                program.getName()));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            assertTrue(process.waitFor(120, TimeUnit.SECONDS), "the program has not ended");
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(0, process.exitValue(), output);
            return output.trim().split(" ");
        } finally {
            process.destroyForcibly();
        }
    }

    /** In seconds. On a machine with other work a process takes long to load its classes. */
    private static final String PATIENT = "60";

    @Test
    void the_first_request_of_a_process_is_granted() throws Exception {
        try (TestServer server = TestServer.start()) {
            for (int i = 0; i < 3; i++) {
                assertEquals("granted", run(server.address(), PATIENT)[0]);
                server.call("DEL", "k");
            }
        }
    }

    @Test
    void the_first_request_of_a_process_with_tls_is_granted() throws Exception {
        try (Certificates certificates = Certificates.create();
                TestServer server = TestServer.builder().tls(certificates).start()) {
            String address = "rediss://127.0.0.1:" + server.tlsPort();
            assertEquals("granted", run(address, PATIENT, certificates.authority().toString())[0]);
        }
    }

    @Test
    void a_hung_server_is_reported_within_the_response_timeout_of_the_first_request() throws Exception {
        try (TestServer server = TestServer.start()) {
            server.pause();
            String[] outcome = run(server.address(), "5");
            server.resume();
            assertEquals("LockConnectionException", outcome[0]);
            assertTrue(Integer.parseInt(outcome[1]) < 60_000, outcome[1] + " ms");
        }
    }
}
