package redislock;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.Map.entry;

import io.lettuce.core.ConnectionFuture;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.PipelinedRedisFuture;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.RedisCommand;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.pubsub.api.async.RedisPubSubAsyncCommands;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.Log;
import redislock.internal.Loop;
import redislock.internal.net.Cmd;
import redislock.internal.net.Network;

/**
 * A server for unit tests, in the memory of this process: its clients are real ones, below which it takes the place of
 * Lettuce's connections. It has locks, read-write locks, semaphores and several locks, with waits in order, leases and
 * sessions; {@code execute} runs {@code GET}, {@code SET}, {@code INCR} and {@code DEL}. It has no latches, refuses no
 * deadlocks, knows no permissions, and no connection ever breaks. Its clock is that of the process, which {@link
 * #advance} moves.
 */
public final class MemoryServer implements AutoCloseable {
    /** The options of requests, each with the number of words behind it. */
    private static final Map<String, Integer> OPTIONS = Map.ofEntries(entry("READ", 0), entry("WRITE", 0),
            entry("SESSION", 0), entry("ONCE", 0), entry("ALL", 0), entry("PX", 1), entry("BLOCK", 1),
            entry("NOTIFY", 2), entry("QUEUE", 1), entry("SEQ", 1), entry("NOTE", 1), entry("COUNT", 1),
            entry("LIMIT", 1), entry("TOKEN", 1), entry("FINAL", 1));
    private static final Object QUEUED = new Object();

    private final List<LockClient> clients = new CopyOnWriteArrayList<>();
    /** What is held, each for one key and mode. */
    private final List<Request> holds = new ArrayList<>();
    /** In their order. */
    private final List<Request> waits = new ArrayList<>();
    /** The permits of semaphores, too. */
    private final Map<String, String> strings = new HashMap<>();
    /** Up to which number an owner has given its requests for a key up. */
    private final Map<List<String>, Long> finals = new HashMap<>();
    private final Map<String, RedisPubSubListener<byte[], byte[]>> channels = new HashMap<>();
    /** Ends what is over. */
    private final Loop loop = new Loop("redis-lock-memory", new Log());
    private Loop.Timer timer = loop.at(Clock.NEVER, this::settle);
    private long lastToken = 1_000;
    private volatile long served;
    private volatile long replicas;

    /** An error reply. */
    private static final class Refusal extends RuntimeException {
        Refusal(String text) {
            super(text);
        }
    }

    /** A request while it waits, and while it holds a key. */
    private static final class Request {
        final Connection connection;
        /** That of a lock, or "permit"; empty: any that its owner has. */
        final String mode;
        final List<String> keys;
        final String owner;
        final Map<String, String> options;
        long since = Clock.now();
        long end;
        List<Long> tokens = List.of();

        Request(Connection connection, String mode, List<String> keys, String owner, Map<String, String> options) {
            this.connection = connection;
            this.mode = mode;
            this.keys = keys;
            this.owner = owner;
            this.options = options;
        }

        boolean has(String option) {
            return options.containsKey(option);
        }

        long number(String option, long absent) {
            return has(option) ? Long.parseLong(options.get(option)) : absent;
        }

        long leaseEnd() {
            return has("SESSION") ? Clock.NEVER : Clock.now() + number("PX", 30_000) * Clock.MILLI;
        }

        long token() {
            return tokens.get(0);
        }
    }

    /** A server without clients. */
    public MemoryServer() {}

    /**
     * A client of this server; several are as several processes.
     *
     * @return the client, which is closed with the server at the latest
     */
    public LockClient client() {
        return client(builder -> {});
    }

    /**
     * A client of this server with settings of its own, such as an observer.
     *
     * @param settings sets them
     * @return the client, which is closed with the server at the latest
     */
    public LockClient client(Consumer<LockClient.Builder> settings) {
        LockClient.Builder builder = new LockClient.Builder(set -> Network.within(new Memory(), set.responseTimeout));
        settings.accept(builder);
        clients.add(builder.build());
        return clients.get(clients.size() - 1);
    }

    /**
     * Moves the clock of the server and of all clients in this process, from one timer to the next: leases are renewed
     * or end, waits end. Tests that do so do not run at the same time.
     *
     * @param span by how much
     */
    public void advance(Duration span) {
        long left = span.toNanos();
        for (long next = settled(); left > 0; next = settled()) {
            long step = Math.min(left, Math.max(0, next - Clock.now()));
            Clock.advance(step);
            left -= step;
        }
    }

    /** Waits until the server and its clients have nothing to do. Returns the moment of the next step. */
    private long settled() {
        long before;
        long next;
        do {
            before = served;
            next = Stream.concat(Stream.of(loop), clients.stream().map(client -> client.network.loop()))
                    .mapToLong(Loop::settle).min().orElseThrow();
        } while (served != before);
        return next;
    }

    /**
     * Takes the holds of a key away, as {@code LOCK.BREAK} does. Their clients know it when this returns.
     *
     * @param name the key
     */
    public void lose(String name) {
        clients.forEach(client -> client.lose(name));
        synchronized (this) {
            holds.removeAll(at(new String(name.getBytes(UTF_8), ISO_8859_1)));
            settle();
        }
        settled();
    }

    /**
     * Sets how many replicas have the grants: none at first.
     *
     * @param number what {@code WAIT} answers
     */
    public void replicas(int number) {
        replicas = number;
    }

    @Override
    public void close() {
        clients.forEach(LockClient::close);
        loop.end();
    }

    /** Ends what is over, and grants in order. */
    private synchronized void settle() {
        holds.removeIf(hold -> hold.end <= Clock.now());
        Set<String> passed = new HashSet<>();
        for (Request wait : List.copyOf(waits)) {
            boolean isGranted = wait.keys.stream().allMatch(key -> isFree(wait, key, passed.contains(key)));
            if (!isGranted && wait.end > Clock.now()) {
                passed.addAll(wait.keys);
                continue;
            }
            waits.remove(wait);
            wait.tokens = isGranted ? wait.keys.stream().map(key -> grant(wait, key)).toList() : List.of();
            String[] told = wait.options.getOrDefault("NOTIFY", "").split(" ");
            if (channels.containsKey(told[0])) {
                String outcome = (isGranted ? "granted " + wait.token() : "timeout") + " " + told[1];
                channels.get(told[0]).message(new byte[0], outcome.getBytes(ISO_8859_1));
            }
        }
        timer.cancel();
        long next = Stream.concat(holds.stream(), waits.stream()).mapToLong(each -> each.end).min().orElse(Clock.NEVER);
        timer = loop.at(next, this::settle);
    }

    private List<Request> at(String key) {
        return holds.stream().filter(hold -> hold.keys.contains(key)).toList();
    }

    private List<Request> queue(String key) {
        return waits.stream().filter(wait -> wait.keys.contains(key)).toList();
    }

    private boolean exists(String key) {
        return strings.containsKey(key) || !at(key).isEmpty();
    }

    private long free(String key) {
        return Long.parseLong(strings.getOrDefault(key, "0"))
                - at(key).stream().mapToLong(hold -> hold.number("COUNT", 1)).sum();
    }

    /** What the owner of a request holds at this key, in its mode and under its token. */
    private List<Request> own(Request ask, String key) {
        return at(key).stream().filter(hold -> hold.owner.equals(ask.owner) && hold.mode.startsWith(ask.mode)
                && ask.number("TOKEN", hold.token()) == hold.token()).toList();
    }

    /** Whether a key can be granted, also again; {@code isPassed}: an earlier request waits for it. */
    private boolean isFree(Request ask, String key, boolean isPassed) {
        List<Request> others = at(key).stream().filter(hold -> !hold.owner.equals(ask.owner)).toList();
        boolean isNext = !isPassed || others.size() < at(key).size();
        boolean isOpen = ask.mode.equals("permit") ? ask.number("COUNT", 1) <= free(key)
                : others.stream().allMatch(hold -> hold.mode.equals("read") && ask.mode.equals("read"));
        return isNext && isOpen || !own(ask, key).isEmpty();
    }

    private long grant(Request ask, String key) {
        Request hold = own(ask, key).stream().findFirst().orElseGet(() ->
                new Request(ask.connection, ask.mode, List.of(key), ask.owner, ask.options));
        if (hold.tokens.isEmpty()) {
            // Readers share a token, and who writes reads under the same.
            hold.tokens = ask.mode.equals("read") && !at(key).isEmpty() ? at(key).get(0).tokens : List.of(++lastToken);
            holds.add(hold);
        }
        hold.end = Math.max(hold.end, ask.leaseEnd());
        return hold.token();
    }

    /** A request of these words, whose keys must be of its kind. */
    private Request request(Connection connection, List<String> words) {
        int first = words.get(0).equals("LOCK.MACQUIRE") ? 2 : 1;
        int last = first == 2 ? 2 + Integer.parseInt(words.get(1)) : 2;
        Map<String, String> options = new HashMap<>();
        for (int i = last + 1; i < words.size(); i++) {
            String option = words.get(i);
            if (!OPTIONS.containsKey(option)) {
                throw new Refusal("ERR syntax error: the double does not know " + option);
            }
            int from = i + 1;
            i += OPTIONS.get(option);
            options.put(option, String.join(" ", words.subList(from, i + 1)));
        }
        String mode = words.get(0).startsWith("SEM") ? "permit" : options.containsKey("READ") ? "read"
                : options.containsKey("WRITE") ? "write" : words.get(0).endsWith("ACQUIRE") ? "exclusive" : "";
        words.subList(first, last).forEach(key -> checked(key, mode));
        return new Request(connection, mode, words.subList(first, last), words.get(last), options);
    }

    /** The same key, which must be of the kind of this mode. */
    private String checked(String key, String mode) {
        String string = strings.get(key);
        if (mode.equals("permit") ? string == null && exists(key) : string != null) {
            throw new Refusal("WRONGTYPE Operation against a key holding the wrong kind of value");
        }
        boolean isOther = at(key).stream().anyMatch(hold -> hold.mode.equals("exclusive") != mode.equals("exclusive"));
        if (string != null ? !string.matches("\\d+") : isOther && !mode.isEmpty()) {
            throw new Refusal("LOCKTYPE the key holds another kind of lock, or none");
        }
        return key;
    }

    private @Nullable Object reply(Connection connection, List<String> words) {
        String name = words.get(0);
        String key = words.get(1);
        return switch (name) {
            case "LOCK.ACQUIRE", "SEM.ACQUIRE" -> acquire(request(connection, words), false);
            case "LOCK.MACQUIRE" -> acquire(request(connection, words), true);
            case "LOCK.RENEW", "SEM.RENEW" -> renew(request(connection, words), key);
            case "LOCK.RELEASE", "SEM.RELEASE" -> release(request(connection, words), key);
            case "LOCK.BREAK" -> holds.removeAll(at(checked(key, ""))) ? 1L : 0L;
            case "LOCK.INFO" -> info(checked(key, ""), false);
            case "SEM.INFO" -> info(checked(key, "permit"), true);
            case "SEM.SET" -> {
                strings.put(checked(key, "permit"), words.get(2));
                yield Long.valueOf(words.get(2));
            }
            case "LOCK.IF" -> {
                if (at(key).stream().noneMatch(hold -> words.get(2).equals("" + hold.token()))) {
                    throw new Refusal("FENCED the lock is not held under this token");
                }
                yield execute(words.subList(3, words.size()), words.get(4));
            }
            case "EXISTS" -> exists(key) ? 1L : 0L;
            case "WAIT" -> replicas;
            default -> throw new Refusal("ERR unknown command '" + name + "'");
        };
    }

    private @Nullable Object acquire(Request ask, boolean hasMany) {
        List<Request> same =
                waits.stream().filter(wait -> wait.owner.equals(ask.owner) && wait.keys.equals(ask.keys)).toList();
        boolean isGivenUp = ask.keys.stream().anyMatch(
                key -> ask.number("SEQ", Clock.NEVER) <= finals.getOrDefault(List.of(key, ask.owner), 0L));
        if (isGivenUp || !same.isEmpty() && !ask.has("BLOCK")) {
            return null;
        }
        if (ask.has("LIMIT")) {
            strings.putIfAbsent(ask.keys.get(0), ask.options.get("LIMIT"));
        }
        long block = ask.number("BLOCK", 0);
        ask.end = ask.has("BLOCK") && block == 0 ? Clock.NEVER : Clock.now() + block * Clock.MILLI;
        ask.since = same.isEmpty() ? ask.since : same.get(0).since;
        boolean isFull = ask.keys.stream().anyMatch(key -> queue(key).size() >= ask.number("QUEUE", Clock.NEVER));
        waits.add(same.isEmpty() ? waits.size() : waits.indexOf(same.get(0)), ask);
        waits.removeAll(same);
        settle();
        if (isFull && same.isEmpty() && waits.remove(ask)) {
            throw new Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already");
        }
        return waits.contains(ask) ? QUEUED : ask.tokens.isEmpty() ? null : hasMany ? ask.tokens : ask.tokens.get(0);
    }

    private long renew(Request ask, String key) {
        List<Request> own = own(ask, key);
        for (Request hold : own) {
            hold.options.putAll(ask.options);
            hold.end = hold.end == Clock.NEVER && !ask.has("PX") ? Clock.NEVER : ask.leaseEnd();
        }
        return own.isEmpty() ? 0 : 1;
    }

    /** Ends the owner's hold, or its wait; with FINAL both. */
    private @Nullable Long release(Request ask, String key) {
        List<Request> own = own(ask, key);
        boolean isFinal = ask.has("FINAL");
        if (isFinal) {
            finals.merge(List.of(key, ask.owner), ask.number("FINAL", 0), Math::max);
        }
        boolean hasWaited = (isFinal || own.isEmpty() && !ask.has("TOKEN")) && waits.removeIf(wait ->
                wait.keys.contains(key) && wait.owner.equals(ask.owner) && wait.mode.startsWith(ask.mode));
        return holds.removeAll(own) || isFinal && hasWaited ? 1L : null;
    }

    private @Nullable Object info(String key, boolean isSemaphore) {
        List<Request> all = at(key);
        List<Request> queue = queue(key);
        if (queue.isEmpty() && !exists(key)) {
            return null;
        }
        List<Object> reply = new ArrayList<>(List.of("waiters", (long) queue.size(), "longest-wait-ms",
                queue.isEmpty() ? 0L : (Clock.now() - queue.get(0).since) / Clock.MILLI));
        if (isSemaphore) {
            long permits = Long.parseLong(strings.getOrDefault(key, "0"));
            reply.addAll(List.of("permits", permits, "free", free(key), "held", permits - free(key)));
            return reply;
        }
        // Who reads and writes, writes.
        String mode = Collections.max((all.isEmpty() ? queue : all).stream().map(each -> each.mode).toList());
        reply.addAll(List.of("mode", mode, "holders", all.stream().filter(hold -> hold.mode.equals(mode)).map(hold -> {
            long left = hold.end == Clock.NEVER ? 10_000 : (hold.end - Clock.now()) / Clock.MILLI;
            return Arrays.asList("owner", hold.owner, "holds", 1L, "token", hold.token(), "pttl", left,
                    "held-ms", (Clock.now() - hold.since) / Clock.MILLI, "note", hold.options.get("NOTE"));
        }).toList()));
        return reply;
    }

    /** Runs a command of the server, with the key that it names first. */
    private @Nullable Object execute(List<String> words, String key) {
        String name = words.get(0).toUpperCase(Locale.ROOT);
        if (Set.of("GET", "INCR").contains(name) && exists(key) && !strings.containsKey(key)) {
            throw new Refusal("WRONGTYPE Operation against a key holding the wrong kind of value");
        }
        return switch (name) {
            case "GET" -> strings.get(key);
            case "SET" -> {
                String condition = words.size() == 3 ? "" : words.get(3).toUpperCase(Locale.ROOT);
                if (words.size() > 4 || !Set.of("", "NX", "XX").contains(condition)) {
                    throw new Refusal("ERR syntax error: the double knows NX or XX alone");
                }
                if (condition.equals(exists(key) ? "NX" : "XX")) {
                    yield null;
                }
                holds.removeAll(at(key));
                strings.put(key, words.get(2));
                yield "OK";
            }
            case "INCR" -> {
                strings.put(key, "" + (Long.parseLong(strings.getOrDefault(key, "0")) + 1));
                yield Long.valueOf(strings.get(key));
            }
            case "DEL" -> words.stream().skip(1)
                    .filter(each -> strings.remove(each) != null | holds.removeAll(at(each))).count();
            default -> throw new Refusal("ERR unknown command '" + name + "'");
        };
    }

    /** The way to it. */
    private final class Memory extends RedisClient {
        Memory() {
            super(null, RedisURI.create("redis://memory"));
        }

        @Override
        public <K, V> ConnectionFuture<StatefulRedisConnection<K, V>> connectAsync(
                RedisCodec<K, V> codec, RedisURI uri) {
            return connected();
        }

        @Override
        public <K, V> ConnectionFuture<StatefulRedisPubSubConnection<K, V>> connectPubSubAsync(
                RedisCodec<K, V> codec, RedisURI uri) {
            return connected();
        }

        @SuppressWarnings("unchecked")
        private <C> ConnectionFuture<C> connected() {
            Class<?>[] types = {StatefulRedisPubSubConnection.class, RedisPubSubAsyncCommands.class};
            Connection connection = new Connection();
            return ConnectionFuture.completed(null, (C) Proxy.newProxyInstance(getClass().getClassLoader(), types,
                    (proxy, method, arguments) -> connection.call(proxy, method.getName(), arguments)));
        }
    }

    /** What is called of a connection. */
    private final class Connection {
        private @Nullable RedisPubSubListener<byte[], byte[]> listener;
        private boolean isOpen = true;

        @SuppressWarnings("unchecked")
        @Nullable Object call(Object proxy, String method, Object[] arguments) {
            return switch (method) {
                case "dispatch" -> serve((RedisCommand<byte[], byte[], Object>) arguments[0]);
                case "addListener" -> {
                    if (arguments[0] instanceof RedisPubSubListener<?, ?> added) {
                        listener = (RedisPubSubListener<byte[], byte[]>) added;
                    }
                    yield null;
                }
                case "subscribe" -> {
                    synchronized (MemoryServer.this) {
                        channels.put(new String(((byte[][]) arguments[0])[0], ISO_8859_1), listener);
                    }
                    yield new PipelinedRedisFuture<>(CompletableFuture.completedFuture(null));
                }
                case "closeAsync" -> {
                    synchronized (MemoryServer.this) {
                        isOpen = false;
                        holds.removeIf(hold -> hold.connection == this && hold.end == Clock.NEVER);
                        settle();
                    }
                    yield CompletableFuture.completedFuture(null);
                }
                case "isOpen" -> isOpen;
                case "async" -> proxy;
                case "hashCode" -> hashCode();
                case "equals" -> proxy == arguments[0];
                default -> null;
            };
        }

        private RedisCommand<byte[], byte[], Object> serve(RedisCommand<byte[], byte[], Object> command) {
            synchronized (MemoryServer.this) {
                served++;
                settle();
                try {
                    write(command.getOutput(), reply(this, ((Cmd) command.getType()).words()));
                } catch (Refusal refused) {
                    command.getOutput().setError(refused.getMessage());
                } catch (NumberFormatException no) {
                    command.getOutput().setError("ERR value is not an integer or out of range");
                }
                settle();
            }
            command.getOutput().complete(0);
            command.complete();
            return command;
        }

        private static void write(CommandOutput<byte[], byte[], Object> output, @Nullable Object reply) {
            if (reply instanceof Long number) {
                output.set(number);
            } else if (reply instanceof List<?> list) {
                output.multi(list.size());
                list.forEach(each -> write(output, each));
            } else if (reply != QUEUED) {
                // Lettuce withholds that reply.
                output.set(reply == null ? null : ByteBuffer.wrap(reply.toString().getBytes(ISO_8859_1)));
            }
        }
    }
}
