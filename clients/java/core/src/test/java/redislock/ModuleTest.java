package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import redislock.testing.TestServer;

/** A program on the module path. */
class ModuleTest {
    private static final String PROGRAM = """
            package probe;

            public class Main {
                public static void main(String[] arguments) throws Exception {
                    try (redislock.LockClient client = redislock.LockClient.create(arguments[0])) {
                        redislock.Guard guard = client.lock("k").acquire();
                        var wait = client.lock("k").acquireAsync(null);
                        guard.release();
                        System.out.println(wait.get().orElseThrow().release());
                    }
                }
            }
            """;

    @Test
    void a_program_with_modules_holds_a_lock(@TempDir Path folder) throws Exception {
        Path sources = Files.createDirectories(folder.resolve("probe"));
        Files.writeString(folder.resolve("module-info.java"), "module probe { requires redislock.client; }");
        Files.writeString(sources.resolve("Main.java"), PROGRAM);
        String modules = modules();
        int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null, "--module-path", modules,
                "-d", folder.resolve("out").toString(), folder.resolve("module-info.java").toString(),
                sources.resolve("Main.java").toString());
        assertEquals(0, failed, "the program is not compiled");
        try (TestServer server = TestServer.start()) {
            Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "--module-path",
                    modules + File.pathSeparator + folder.resolve("out"), "-m", "probe/probe.Main", server.address())
                    .redirectErrorStream(true).start();
            assertTrue(process.waitFor(120, TimeUnit.SECONDS), "the program has not ended");
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertTrue(output.contains("YES"), output);
        }
    }

    /** The client and what it needs. */
    private static String modules() {
        String path = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        List<String> all = Stream.of(path.split(Pattern.quote(File.pathSeparator))).toList();
        String needed = ".*(redis-lock-client.classes|lettuce-core|netty-(common|buffer|codec-base|codec|codec-dns"
                + "|handler|resolver|resolver-dns|transport|transport-native-unix-common)-[0-9]|reactor-core"
                + "|reactive-streams"
                + "|redis-authx-core|jspecify).*";
        return all.stream().filter(each -> each.matches(needed)).collect(Collectors.joining(File.pathSeparator));
    }
}
