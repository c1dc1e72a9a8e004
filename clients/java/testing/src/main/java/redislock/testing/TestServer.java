package redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * A running server on 127.0.0.1. Closing it checks that it has neither crashed nor reported a bug and that the lock
 * module's counters add up, and ends the process.
 */
public final class TestServer implements AutoCloseable {
    private static final int TRIES = 20;
    private static final long STEP_NANOS = 5_000_000;

    private final TestServerBuilder options;
    private final Path dir;
    private final int port;
    private final int tlsPort;
    private Process process;
    /** Whether the test itself has killed the process. */
    private boolean isKilled;
    private boolean isClosed;

    private TestServer(TestServerBuilder options) {
        this.options = options;
        this.dir = Directories.create();
        this.port = Ports.free();
        this.tlsPort = options.hasTls() ? Ports.free() : 0;
        this.process = spawn();
    }

    /** Starts a server and waits until it serves. */
    static TestServer start(TestServerBuilder options) {
        for (int i = 0; i < TRIES; i++) {
            TestServer server = new TestServer(options);
            if (server.comesUp()) {
                return server;
            }
            String log = server.textOf("output") + server.log();
            server.end();
            // Another process may have taken the port meanwhile.
            if (!log.contains("Address already in use")) {
                throw new AssertionError("the server did not start:\n" + log);
            }
        }
        throw new AssertionError("no free port");
    }

    /**
     * Starts a server with the lock module and without persistence.
     *
     * @return the server
     */
    public static TestServer start() {
        return builder().start();
    }

    /**
     * Starts a server with the lock module and more options.
     *
     * @param options words of the command line, for example {@code "--lock.max-tickets", "0"}
     * @return the server
     */
    public static TestServer with(String... options) {
        return builder().options(options).start();
    }

    /**
     * Starts a server without the lock module.
     *
     * @param options words of the command line
     * @return the server
     */
    public static TestServer withoutModule(String... options) {
        return builder().withoutModule().options(options).start();
    }

    /**
     * The options of a server to start.
     *
     * @return a builder
     */
    public static TestServerBuilder builder() {
        return new TestServerBuilder();
    }

    /**
     * The server's port on 127.0.0.1.
     *
     * @return the port
     */
    public int port() {
        return port;
    }

    /**
     * The server's port for TLS; 0 without TLS.
     *
     * @return the port
     */
    public int tlsPort() {
        return tlsPort;
    }

    /**
     * The server's address for the client.
     *
     * @return {@code redis://127.0.0.1:port}
     */
    public String address() {
        return "redis://127.0.0.1:" + port;
    }

    /**
     * The address of a user at this server.
     *
     * @param user the user's name
     * @param password the user's password
     * @return {@code redis://user:password@127.0.0.1:port}
     */
    public String address(String user, String password) {
        return "redis://" + user + ":" + password + "@127.0.0.1:" + port;
    }

    /**
     * Opens a connection, authenticated if the default user has a password. The caller closes it.
     *
     * @return the connection
     */
    public Conn conn() {
        Conn conn = new Conn(port);
        if (options.password() != null) {
            conn.expect("AUTH", options.password());
        }
        return conn;
    }

    /**
     * Sends one command whose words contain no spaces, on a connection of its own.
     *
     * @param line the words
     * @return the reply
     */
    public Object line(String line) {
        try (Conn conn = conn()) {
            return conn.line(line);
        }
    }

    /**
     * Sends one command on a connection of its own.
     *
     * @param words as for {@link Conn#call}
     * @return the reply
     */
    public Object call(Object... words) {
        try (Conn conn = conn()) {
            return conn.call(words);
        }
    }

    /**
     * A section of {@code INFO}.
     *
     * @param section the section's name
     * @return its text
     */
    public String info(String section) {
        return (String) call("INFO", section);
    }

    /**
     * A field of a section of {@code INFO}.
     *
     * @param section the section's name
     * @param field the field's name
     * @return its text, empty if it is missing
     */
    public String infoField(String section, String field) {
        return fieldOf(info(section), field);
    }

    /**
     * A number of {@code INFO lock}.
     *
     * @param name the field's name without the prefix {@code lock_}
     * @return the number
     */
    public long stat(String name) {
        return Counters.number(info("lock"), "lock_" + name);
    }

    /**
     * Waits until this number of requests is parked.
     *
     * @param count the number
     */
    public void awaitWaiters(long count) {
        Waiting.waitFor(count + " parked requests", () -> stat("waiters") == count);
    }

    /**
     * Waits until this number of tickets is queued.
     *
     * @param count the number
     */
    public void awaitTickets(long count) {
        Waiting.waitFor(count + " tickets", () -> stat("tickets") == count);
    }

    /**
     * The server's connections by {@code CLIENT LIST}, without the one that asks.
     *
     * @return the fields of each connection, among them {@code id}, {@code name}, {@code cmd}, {@code sub}
     */
    public List<Map<String, String>> clients() {
        try (Conn conn = conn()) {
            String own = String.valueOf(conn.expect("CLIENT", "ID"));
            String list = (String) conn.expect("CLIENT", "LIST");
            return list.lines().map(TestServer::fields).filter(client -> !own.equals(client.get("id"))).toList();
        }
    }

    /**
     * Closes the matching connections of the server.
     *
     * @param which selects a connection by its fields, see {@link #clients}
     * @return the number of closed connections
     */
    public int killClients(Predicate<Map<String, String>> which) {
        List<Map<String, String>> chosen = clients().stream().filter(which).toList();
        try (Conn conn = conn()) {
            return (int) chosen.stream()
                    .filter(client -> Long.valueOf(1).equals(conn.call("CLIENT", "KILL", "ID", client.get("id"))))
                    .count();
        }
    }

    /**
     * The process id.
     *
     * @return the id
     */
    public long pid() {
        return process.pid();
    }

    /**
     * Whether the process is running.
     *
     * @return whether it is
     */
    public boolean isAlive() {
        return process.isAlive();
    }

    /** Stops the process ({@code SIGSTOP}): connections stay open and nothing is answered. */
    public void pause() {
        Processes.signal(process, "STOP");
        Waiting.waitFor("the server to stop", this::isStopped);
    }

    /** Lets a stopped process run again ({@code SIGCONT}). */
    public void resume() {
        Processes.signal(process, "CONT");
    }

    /** Ends the process at once ({@code SIGKILL}). */
    public void kill() {
        isKilled = true;
        Processes.end(process);
    }

    /** Ends the process at once and starts it again on the same port and directory. */
    public void restart() {
        kill();
        startAgain();
    }

    /** Starts the ended process again on the same port and directory. */
    public void startAgain() {
        long start = System.nanoTime();
        while (true) {
            int logged = log().length();
            process = spawn();
            if (comesUp()) {
                isKilled = false;
                return;
            }
            String log = log().substring(logged);
            boolean isLate = System.nanoTime() - start > Waiting.PATIENCE.toNanos();
            if (isLate || !log.contains("Address already in use")) {
                throw new AssertionError("the server did not start again:\n" + log);
            }
        }
    }

    /**
     * Makes this server a replica of another and waits until it has all of its data.
     *
     * @param primary the other server
     */
    public void follow(TestServer primary) {
        primary.line("CONFIG SET repl-diskless-sync-delay 0");
        call("REPLICAOF", "127.0.0.1", primary.port);
        Waiting.waitFor("the link to the primary",
                () -> infoField("replication", "master_link_status").equals("up"));
        awaitSync(primary);
    }

    /**
     * Waits until this replica has applied all writes of its primary.
     *
     * @param primary the primary
     */
    public void awaitSync(TestServer primary) {
        String offset = "master_repl_offset";
        Waiting.waitFor("equal offsets",
                () -> infoField("replication", offset).equals(primary.infoField("replication", offset)));
    }

    /** Makes this replica a primary. */
    public void promote() {
        line("REPLICAOF NO ONE");
    }

    /**
     * The server's version.
     *
     * @return major, minor and patch number in one: 70015 is 7.0.15
     */
    public int version() {
        String info = info("server");
        String version = fieldOf(info, isValkey() ? "valkey_version" : "redis_version");
        return Arrays.stream(version.split("\\.")).mapToInt(Integer::parseInt).reduce(0, (sum, n) -> sum * 100 + n);
    }

    /**
     * Whether the server is Valkey.
     *
     * @return whether it is
     */
    public boolean isValkey() {
        return info("server").contains("valkey_version:");
    }

    /**
     * The server's log.
     *
     * @return its text so far
     */
    public String log() {
        return textOf("log");
    }

    private String textOf(String name) {
        try {
            Path file = dir.resolve(name);
            return Files.exists(file) ? Files.readString(file, StandardCharsets.ISO_8859_1) : "";
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * The server's directory.
     *
     * @return its path
     */
    public Path dir() {
        return dir;
    }

    @Override
    public void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        try {
            if (!isKilled) {
                checkHealth();
            }
        } finally {
            end();
        }
    }

    private void checkHealth() {
        String log = log();
        if (!process.isAlive() || log.contains("BUG REPORT") || log.contains("panic at")) {
            throw new AssertionError("the server's log:\n" + log);
        }
        if (isStopped()) {
            resume();
        }
        if (!options.hasModule()) {
            return;
        }
        try (Conn conn = conn()) {
            if (conn.call("INFO", "lock") instanceof String info && info.contains("lock_grants:")) {
                Counters.check(info);
            }
        }
    }

    private void end() {
        Processes.end(process);
        Directories.delete(dir);
    }

    private boolean comesUp() {
        long start = System.nanoTime();
        while (process.isAlive()) {
            if (answers()) {
                return true;
            }
            if (System.nanoTime() - start > Waiting.PATIENCE.toNanos()) {
                String log = log();
                Processes.end(process);
                throw new AssertionError("the server does not answer:\n" + log);
            }
            LockSupport.parkNanos(STEP_NANOS);
        }
        return false;
    }

    /** Whether this process serves the port: the server of another test may have taken it first. */
    private boolean answers() {
        try (Conn conn = conn()) {
            return conn.call("INFO", "server") instanceof String info
                    && fieldOf(info, "process_id").equals(Long.toString(process.pid()))
                    && "PONG".equals(conn.call("PING"));
        } catch (UncheckedIOException notYet) {
            return false;
        }
    }

    /** The state {@code T} in {@code /proc/PID/stat}, behind the name in parentheses. */
    private boolean isStopped() {
        try {
            String stat = Files.readString(Path.of("/proc", Long.toString(process.pid()), "stat"));
            return stat.substring(stat.lastIndexOf(") ") + 2).startsWith("T");
        } catch (IOException noProc) {
            return false;
        }
    }

    private Process spawn() {
        return Processes.start(options.command(dir, port, tlsPort), dir);
    }

    static String fieldOf(String info, String name) {
        String start = name + ":";
        return info.lines().filter(line -> line.startsWith(start)).map(line -> line.substring(start.length()).strip())
                .findFirst().orElse("");
    }

    private static Map<String, String> fields(String line) {
        Map<String, String> fields = new LinkedHashMap<>();
        for (String word : line.split(" ")) {
            int equals = word.indexOf('=');
            if (equals > 0) {
                fields.put(word.substring(0, equals), word.substring(equals + 1));
            }
        }
        return fields;
    }
}
