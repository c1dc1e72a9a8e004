package redislock.testing;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The options of a server to start. */
public final class TestServerBuilder {
    private final List<String> words = new ArrayList<>();
    private Path module = modulePath();
    private Certificates certificates;
    private String password;
    private boolean hasUsers;

    TestServerBuilder() {}

    /**
     * Adds words of the command line.
     *
     * @param options for example {@code "--lock.max-tickets", "0"}
     * @return this builder
     */
    public TestServerBuilder options(String... options) {
        words.addAll(Arrays.asList(options));
        return this;
    }

    /**
     * Leaves the lock module out.
     *
     * @return this builder
     */
    public TestServerBuilder withoutModule() {
        module = null;
        return this;
    }

    /**
     * Takes another build of the lock module.
     *
     * @param module its file
     * @return this builder
     */
    public TestServerBuilder module(Path module) {
        this.module = module;
        return this;
    }

    /**
     * Gives the default user a password.
     *
     * @param password the password
     * @return this builder
     */
    public TestServerBuilder password(String password) {
        this.password = password;
        return this;
    }

    /**
     * Loads the users of {@code users.acl.example}. Connections of {@link TestServer#conn} are the default user's.
     *
     * @return this builder
     */
    public TestServerBuilder users() {
        hasUsers = true;
        return this;
    }

    /**
     * Opens a second port for TLS.
     *
     * @param certificates the server's certificates
     * @return this builder
     */
    public TestServerBuilder tls(Certificates certificates) {
        this.certificates = certificates;
        return this;
    }

    /**
     * Starts the server and waits until it serves.
     *
     * @return the server
     */
    public TestServer start() {
        return TestServer.start(this);
    }

    boolean hasTls() {
        return certificates != null;
    }

    boolean hasModule() {
        return module != null;
    }

    String password() {
        return password;
    }

    /** The command line of a server with these options. */
    List<String> command(Path dir, int port, int tlsPort) {
        List<String> command = new ArrayList<>();
        command.add(serverBinary());
        command.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1", "--save", ""));
        command.addAll(List.of("--dir", dir.toString(), "--logfile", dir.resolve("log").toString()));
        if (module != null) {
            command.addAll(List.of("--loadmodule", module.toString()));
        }
        if (password != null) {
            command.addAll(List.of("--requirepass", password));
        }
        if (hasUsers) {
            command.addAll(List.of("--aclfile", repository().resolve("users.acl.example").toString()));
        }
        if (certificates != null) {
            command.addAll(certificates.serverOptions(tlsPort));
        }
        command.addAll(words);
        return command;
    }

    static String serverBinary() {
        return System.getenv().getOrDefault("LOCK_SERVER", "redis-server");
    }

    private static Path modulePath() {
        String module = System.getenv("LOCK_MODULE");
        Path path = module == null ? repository().resolve("target/release/libredis_lock.so") : Path.of(module);
        return path.toAbsolutePath().normalize();
    }

    /** The root of the repository: Maven runs the tests of {@code clients/java/<module>} in that directory. */
    private static Path repository() {
        return Path.of(System.getProperty("basedir", "."), "../../..").toAbsolutePath().normalize();
    }
}
