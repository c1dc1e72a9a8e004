package redislock.testing;

import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A cluster of primaries, optionally with one replica each. Closing it ends all nodes. */
public final class TestCluster implements AutoCloseable {
    /** The number of slots of a cluster. */
    public static final int SLOTS = 16_384;

    private final List<TestServer> nodes = new ArrayList<>();
    private final int primaries;

    private TestCluster(int primaries) {
        this.primaries = primaries;
    }

    /**
     * Starts primaries that share the slots in equal ranges, and waits until every node serves.
     *
     * @param primaries the number of primaries
     * @param options words of the nodes' command lines
     * @return the cluster
     */
    public static TestCluster start(int primaries, String... options) {
        return start(primaries, false, options);
    }

    /**
     * The same with a replica for each primary. Node {@code primaries + i} is the replica of node {@code i}.
     *
     * @param primaries the number of primaries
     * @param options words of the nodes' command lines
     * @return the cluster
     */
    public static TestCluster startWithReplicas(int primaries, String... options) {
        return start(primaries, true, options);
    }

    private static TestCluster start(int primaries, boolean hasReplicas, String... options) {
        TestCluster cluster = new TestCluster(primaries);
        try {
            cluster.startNodes(hasReplicas ? 2 * primaries : primaries, options);
            if (hasReplicas) {
                cluster.replicate();
            }
            return cluster;
        } catch (Throwable e) {
            Closing.after(e, cluster);
            throw e;
        }
    }

    /**
     * The nodes: the primaries, then the replicas.
     *
     * @return the nodes
     */
    public List<TestServer> nodes() {
        return nodes;
    }

    /**
     * A node.
     *
     * @param index its index in {@link #nodes}
     * @return the node
     */
    public TestServer node(int index) {
        return nodes.get(index);
    }

    /**
     * The address for the client.
     *
     * @return {@code redis+cluster://127.0.0.1:port,...}
     */
    public String address() {
        String hosts = nodes.stream().map(node -> "127.0.0.1:" + node.port()).collect(Collectors.joining(","));
        return "redis+cluster://" + hosts;
    }

    /**
     * The slot of a key.
     *
     * @param key the key
     * @return the slot
     */
    public int slotOf(String key) {
        return ((Long) nodes.get(0).call("CLUSTER", "KEYSLOT", key)).intValue();
    }

    /**
     * A key that a node serves at the moment.
     *
     * @param node the node
     * @param stem the beginning of the key's hash tag
     * @return a key of the form <code>{stem7}</code>
     */
    public String keyOf(TestServer node, String stem) {
        return IntStream.range(0, 1_000).mapToObj(i -> "{" + stem + i + "}")
                .filter(key -> ownerOf(node, slotOf(key)) == node.port()).findFirst().orElseThrow();
    }

    /**
     * Moves a slot with its keys.
     *
     * @param slot the slot
     * @param source its present node
     * @param target its new node
     */
    public void move(int slot, TestServer source, TestServer target) {
        beginMove(slot, source, target);
        migrateKeys(slot, source, target);
        endMove(slot, source, target);
    }

    /**
     * Marks a slot as migrating at one node and as importing at the other. From now on keys that are not at the source
     * are answered {@code ASK}.
     *
     * @param slot the slot
     * @param source its present node
     * @param target its new node
     */
    public void beginMove(int slot, TestServer source, TestServer target) {
        settle(source, target);
        settle(target, source);
        // With equal epochs known, the target takes a newer one when the slot arrives, and its claim is accepted.
        Waiting.waitFor("one epoch", () -> Objects.equals(epochOf(source), epochOf(target)));
        expectOk(target, "CLUSTER SETSLOT " + slot + " IMPORTING " + idOf(source));
        expectOk(source, "CLUSTER SETSLOT " + slot + " MIGRATING " + idOf(target));
    }

    /**
     * Migrates all keys of a slot that is marked by {@link #beginMove}.
     *
     * @param slot the slot
     * @param source its present node
     * @param target its new node
     */
    public void migrateKeys(int slot, TestServer source, TestServer target) {
        try (Conn conn = source.conn()) {
            while (true) {
                List<?> keys = (List<?>) conn.expect("CLUSTER", "GETKEYSINSLOT", slot, 100);
                if (keys.isEmpty()) {
                    return;
                }
                // A key may be released or expire meanwhile: then the reply is NOKEY.
                keys.forEach(key -> conn.expect("MIGRATE", "127.0.0.1", target.port(), key, 0, 10_000));
            }
        }
    }

    /**
     * Assigns a slot to its new node, and waits until all nodes know.
     *
     * @param slot the slot
     * @param source its former node
     * @param target its new node
     */
    public void endMove(int slot, TestServer source, TestServer target) {
        String line = "CLUSTER SETSLOT " + slot + " NODE " + idOf(target);
        expectOk(target, line);
        expectOk(source, line);
        for (TestServer node : nodes) {
            if (node.isAlive()) {
                Waiting.waitFor("one owner of the slot", () -> ownerOf(node, slot) == target.port());
            }
        }
    }

    /**
     * Promotes the replica of a primary, and waits until all nodes know. The former primary becomes its replica.
     *
     * @param primary the index of the primary
     */
    public void failOver(int primary) {
        TestServer replica = nodes.get(primaries + primary);
        expectOk(replica, "CLUSTER FAILOVER");
        Waiting.waitFor("the promotion", () -> replica.infoField("replication", "role").equals("master"));
        int slot = SLOTS * primary / primaries;
        for (TestServer node : nodes) {
            Waiting.waitFor("a node that knows the new primary", () -> ownerOf(node, slot) == replica.port());
        }
    }

    @Override
    public void close() {
        Closing.closeAll(nodes);
    }

    private void startNodes(int count, String... options) {
        for (int i = 0; i < count; i++) {
            // Without the last option a primary that loses its last slot becomes a replica.
            nodes.add(TestServer.builder()
                    .options("--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")
                    .options("--cluster-allow-replica-migration", "no")
                    .options(options)
                    .start());
            expectOk(nodes.get(i), "CLUSTER SET-CONFIG-EPOCH " + (i + 1));
        }
        for (int i = 0; i < primaries; i++) {
            int first = SLOTS * i / primaries;
            int last = SLOTS * (i + 1) / primaries - 1;
            List<Object> words = new ArrayList<>(List.of("CLUSTER", "ADDSLOTS"));
            IntStream.rangeClosed(first, last).forEach(words::add);
            nodes.get(i).call(words.toArray());
        }
        for (TestServer node : nodes.subList(1, nodes.size())) {
            expectOk(nodes.get(0), "CLUSTER MEET 127.0.0.1 " + node.port());
        }
        awaitServed();
    }

    private void awaitServed() {
        for (TestServer node : nodes) {
            Waiting.waitFor("the cluster", () -> {
                String info = (String) node.line("CLUSTER INFO");
                return info.contains("cluster_state:ok")
                        && info.contains("cluster_slots_assigned:" + SLOTS)
                        && info.contains("cluster_known_nodes:" + nodes.size());
            });
        }
    }

    private void replicate() {
        for (int i = 0; i < primaries; i++) {
            TestServer replica = nodes.get(primaries + i);
            String line = "CLUSTER REPLICATE " + idOf(nodes.get(i));
            Waiting.waitFor("a primary that its replica knows", () -> "OK".equals(replica.line(line)));
            Waiting.waitFor("a replica with data",
                    () -> replica.infoField("replication", "master_link_status").equals("up"));
        }
        for (TestServer node : nodes) {
            Waiting.waitFor("a node that knows all replicas", () -> {
                String view = (String) node.line("CLUSTER NODES");
                return view.lines().filter(line -> line.contains("slave")).count() == primaries;
            });
        }
    }

    /** Waits until this node has received everything that the other has sent so far. */
    private static void settle(TestServer node, TestServer other) {
        String id = idOf(other);
        long[] answered = {0};
        Waiting.waitFor("no ping under way", () -> {
            String[] link = linkTo(node, id);
            answered[0] = Long.parseLong(link[5]);
            return link[4].equals("0");
        });
        Waiting.waitFor("an answer to the next ping", () -> Long.parseLong(linkTo(node, id)[5]) > answered[0]);
    }

    /** The words of a node's line about another one; words 4 and 5 are the times of the last ping and pong. */
    private static String[] linkTo(TestServer node, String id) {
        String view = (String) node.line("CLUSTER NODES");
        return view.lines().filter(line -> line.startsWith(id)).findFirst().orElseThrow().split(" ");
    }

    private static String epochOf(TestServer node) {
        return TestServer.fieldOf((String) node.line("CLUSTER INFO"), "cluster_current_epoch");
    }

    private static String idOf(TestServer node) {
        return (String) node.line("CLUSTER MYID");
    }

    /** The port of a slot's primary as far as this node knows; 0 for none. */
    private static int ownerOf(TestServer node, int slot) {
        try {
            for (Object entry : (List<?>) node.line("CLUSTER SLOTS")) {
                List<?> range = (List<?>) entry;
                if ((Long) range.get(0) <= slot && slot <= (Long) range.get(1)) {
                    return ((Long) ((List<?>) range.get(2)).get(1)).intValue();
                }
            }
            return 0;
        } catch (UncheckedIOException down) {
            return 0;
        }
    }

    private static void expectOk(TestServer node, String line) {
        Object reply = node.line(line);
        if (!"OK".equals(reply)) {
            throw new AssertionError(line + " was answered " + reply);
        }
    }
}
