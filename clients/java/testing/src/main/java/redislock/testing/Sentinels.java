package redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** A primary and its replicas, watched by sentinels. Closing it ends all of these processes. */
public final class Sentinels implements AutoCloseable {
    /** The sentinels' name of the primary. */
    public static final String NAME = "locks";

    /** A server that does not answer for this long counts as dead while a fail-over is waited for. */
    private static final int DOWN_AFTER_MS = 1_000;

    /** The same at other times: on a busy machine a living server is silent for seconds, and must not be replaced. */
    private static final int PATIENT_MS = 600_000;

    private static final int TRIES = 20;

    private final List<TestServer> servers = new ArrayList<>();
    private final List<Sentinel> sentinels = new ArrayList<>();

    private Sentinels() {}

    /**
     * Starts the processes and waits until the sentinels know the replicas and one another.
     *
     * @param replicas the number of replicas
     * @param sentinels the number of sentinels: most of them must agree that the primary is down
     * @param options words of the servers' command lines
     * @return the running processes
     */
    public static Sentinels start(int replicas, int sentinels, String... options) {
        Sentinels all = new Sentinels();
        try {
            all.startServers(replicas, options);
            for (int i = 0; i < sentinels; i++) {
                all.sentinels.add(Sentinel.start(all.servers.get(0).port(), sentinels / 2 + 1));
            }
            for (Sentinel sentinel : all.sentinels) {
                sentinel.awaitAllKnown(replicas, sentinels - 1);
            }
            return all;
        } catch (Throwable e) {
            Closing.after(e, all);
            throw e;
        }
    }

    /**
     * The servers; the first one starts as the primary.
     *
     * @return the servers
     */
    public List<TestServer> servers() {
        return servers;
    }

    /**
     * The ports of the sentinels.
     *
     * @return the ports on 127.0.0.1
     */
    public List<Integer> ports() {
        return sentinels.stream().map(sentinel -> sentinel.port).toList();
    }

    /**
     * The address for the client.
     *
     * @return {@code redis+sentinel://127.0.0.1:port,.../locks}
     */
    public String address() {
        String hosts = ports().stream().map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
        return "redis+sentinel://" + hosts + "/" + NAME;
    }

    /**
     * The present primary according to the first sentinel.
     *
     * @return one of the servers
     */
    public TestServer primary() {
        int port = sentinels.get(0).primary();
        return servers.stream().filter(server -> server.port() == port).findFirst().orElseThrow();
    }

    /**
     * Waits until all sentinels name the same primary, another one than this server.
     *
     * @param old the former primary
     * @return the new primary
     */
    public TestServer awaitAnotherPrimaryThan(TestServer old) {
        sentinels.forEach(sentinel -> sentinel.setDownAfter(DOWN_AFTER_MS));
        Waiting.waitFor("a new primary", () -> agreeOnAnotherThan(old));
        // One that was begun before this may still replace it.
        sentinels.forEach(sentinel -> sentinel.setDownAfter(PATIENT_MS));
        Waiting.waitFor("a new primary that stays",
                () -> agreeOnAnotherThan(old) && sentinels.stream().allMatch(Sentinel::isAtRest));
        TestServer primary = primary();
        Waiting.waitFor("the promotion", () -> primary.infoField("replication", "role").equals("master"));
        return primary;
    }

    private boolean agreeOnAnotherThan(TestServer old) {
        List<Integer> ports = sentinels.stream().map(Sentinel::primary).distinct().toList();
        return ports.size() == 1 && ports.get(0) != old.port();
    }

    /** Asks the first sentinel for a fail-over, and waits for its end. */
    public void failOver() {
        TestServer old = primary();
        try (Conn conn = new Conn(sentinels.get(0).port)) {
            Waiting.waitFor("a fail-over that begins",
                    () -> "OK".equals(conn.call("SENTINEL", "FAILOVER", NAME)));
        }
        awaitAnotherPrimaryThan(old);
    }

    @Override
    public void close() {
        List<AutoCloseable> all = new ArrayList<>(sentinels);
        all.addAll(servers);
        Closing.closeAll(all);
    }

    private void startServers(int replicas, String... options) {
        for (int i = 0; i <= replicas; i++) {
            servers.add(TestServer.with(options));
        }
        for (TestServer replica : servers.subList(1, servers.size())) {
            replica.follow(servers.get(0));
        }
    }

    /** One sentinel. */
    private static final class Sentinel implements AutoCloseable {
        final int port;
        private final Path dir;
        private final Process process;

        private Sentinel(int primary, int quorum) {
            port = Ports.free();
            dir = Directories.create();
            Path file = dir.resolve("sentinel.conf");
            try {
                Files.writeString(file, configuration(primary, quorum));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            process = Processes.start(List.of(TestServerBuilder.serverBinary(), file.toString(), "--sentinel"), dir);
        }

        static Sentinel start(int primary, int quorum) {
            for (int i = 0; i < TRIES; i++) {
                Sentinel sentinel = new Sentinel(primary, quorum);
                Waiting.waitFor("a sentinel", () -> !sentinel.process.isAlive() || sentinel.answers());
                if (sentinel.process.isAlive()) {
                    sentinel.hurry();
                    return sentinel;
                }
                // Another process has taken the port.
                sentinel.close();
            }
            throw new AssertionError("no sentinel came up");
        }

        int primary() {
            try (Conn conn = new Conn(port)) {
                List<?> address = (List<?>) conn.expect("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
                return Integer.parseInt((String) address.get(1));
            }
        }

        void setDownAfter(int ms) {
            try (Conn conn = new Conn(port)) {
                conn.expect("SENTINEL", "SET", NAME, "down-after-milliseconds", Integer.toString(ms));
            }
        }

        /** Whether the primary is healthy, and no fail-over goes on. */
        boolean isAtRest() {
            try (Conn conn = new Conn(port)) {
                return Conn.map(conn.expect("SENTINEL", "MASTER", NAME)).get("flags").equals("master");
            }
        }

        void awaitAllKnown(int replicas, int others) {
            try (Conn conn = new Conn(port)) {
                Waiting.waitFor("a sentinel that knows all others", () -> {
                    Map<String, Object> primary = Conn.map(conn.expect("SENTINEL", "MASTER", NAME));
                    return primary.get("num-slaves").equals(Integer.toString(replicas))
                            && primary.get("num-other-sentinels").equals(Integer.toString(others))
                            && primary.get("flags").equals("master");
                });
            }
        }

        @Override
        public void close() {
            Processes.end(process);
            Directories.delete(dir);
        }

        private boolean answers() {
            try (Conn conn = new Conn(port)) {
                return conn.call("INFO", "server") instanceof String info
                        && info.contains("process_id:" + process.pid() + "\r");
            } catch (UncheckedIOException notYet) {
                return false;
            }
        }

        /** Shortens the periods of 2 s and 10 s in which sentinels learn of one another. Servers before 7.0 refuse. */
        private void hurry() {
            try (Conn conn = new Conn(port)) {
                conn.line("SENTINEL DEBUG PUBLISH-PERIOD 200");
                conn.line("SENTINEL DEBUG INFO-PERIOD 500");
            }
        }

        private String configuration(int primary, int quorum) {
            return String.join("\n",
                    "port " + port,
                    "bind 127.0.0.1",
                    "dir " + dir,
                    "logfile " + dir.resolve("log"),
                    "sentinel monitor " + NAME + " 127.0.0.1 " + primary + " " + quorum,
                    "sentinel down-after-milliseconds " + NAME + " " + PATIENT_MS,
                    "sentinel failover-timeout " + NAME + " 3000",
                    "sentinel parallel-syncs " + NAME + " 2",
                    "");
        }
    }
}
