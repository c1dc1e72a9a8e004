package redislock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.VoidOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.RedisCommand;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.pubsub.api.async.RedisPubSubAsyncCommands;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import redislock.internal.Clock;
import redislock.internal.MemoryLocks;

/**
 * A server for unit tests, in the memory of this process: its clients are real ones, below which these objects take the
 * place of connections. It has locks, read-write locks, semaphores, several locks and waits in order; {@code execute}
 * runs {@code GET}, {@code SET}, {@code INCR} and {@code DEL}. It has no latches, refuses no deadlocks, and has every
 * grant on as many replicas as are wanted. Its leases end by {@link #advance} alone.
 */
public final class MemoryServer implements AutoCloseable {
    /** Also the monitor of what happens there. */
    private final MemoryLocks locks = new MemoryLocks();
    private final Map<String, RedisPubSubListener<byte[], byte[]>> channels = new ConcurrentHashMap<>();
    private final List<LockClient> clients = new CopyOnWriteArrayList<>();
    private final Memory memory = new Memory();

    /** The connections. */
    private final class Memory extends RedisClient {
        Memory() {
            super(null, RedisURI.create("redis://memory"));
        }

        @Override
        public <K, V> StatefulRedisConnection<K, V> connect(@Nullable RedisCodec<K, V> codec) {
            if (codec == null) {
                throw new IllegalArgumentException("no codec");
            }
            return connection(StatefulRedisConnection.class);
        }

        @Override
        public <K, V> StatefulRedisPubSubConnection<K, V> connectPubSub(RedisCodec<K, V> codec) {
            return connection(StatefulRedisPubSubConnection.class);
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
        LockClient client = LockClient.builder(memory).name("memory").build();
        clients.add(client);
        return client;
    }

    /**
     * Moves the clock of the server and of all clients in this process, step by step: leases are renewed or end, waits
     * end. Tests that do so do not run at the same time.
     *
     * @param span by how much
     */
    public void advance(Duration span) {
        long left = span.toNanos();
        boolean isOver;
        do {
            isOver = left == 0;
            long step = Math.min(left, Math.max(0, settle() - Clock.now()));
            List<MemoryLocks.Message> messages;
            synchronized (locks) {
                step = locks.advance(step);
                Clock.advance(step);
                messages = locks.settle();
            }
            messages.forEach(this::publish);
            left -= step;
        } while (!isOver);
        settle();
    }

    /** Waits until the clients have nothing to do. Returns the moment of their next step. */
    private long settle() {
        return clients.stream().mapToLong(client -> client.network.loop().settle()).min().orElse(Clock.NEVER);
    }

    /**
     * Takes the holds of a key away, as {@code LOCK.BREAK} does. Their clients know it when this returns.
     *
     * @param name the key
     */
    public void lose(String name) {
        List<MemoryLocks.Message> messages;
        synchronized (locks) {
            locks.lose(name);
            messages = locks.settle();
        }
        clients.forEach(client -> client.lose(name));
        messages.forEach(this::publish);
        settle();
    }

    @Override
    public void close() {
        clients.forEach(LockClient::close);
        memory.shutdown(0, 0, TimeUnit.SECONDS);
    }

    @SuppressWarnings("unchecked")
    private <T> T connection(Class<?> type) {
        boolean[] isOpen = {true};
        List<RedisPubSubListener<byte[], byte[]>> listeners = new ArrayList<>();
        InvocationHandler subscriptions = (proxy, method, arguments) -> {
            String channel = text(((byte[][]) arguments[0])[0]);
            channels.put(channel, listeners.get(0));
            synchronized (locks) {
                locks.subscribe(channel);
            }
            AsyncCommand<byte[], byte[], Void> done =
                    new AsyncCommand<>(new Command<>(CommandType.SUBSCRIBE, new VoidOutput<byte[], byte[]>()));
            done.complete();
            return done;
        };
        Object async = Proxy.newProxyInstance(
                type.getClassLoader(), new Class<?>[] {RedisPubSubAsyncCommands.class}, subscriptions);
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, arguments) -> {
            return switch (method.getName()) {
                case "dispatch" -> {
                    serve((RedisCommand<byte[], byte[], Object>) arguments[0]);
                    yield arguments[0];
                }
                case "addListener" -> {
                    if (arguments[0] instanceof RedisPubSubListener<?, ?> listener) {
                        listeners.add((RedisPubSubListener<byte[], byte[]>) listener);
                    }
                    yield null;
                }
                case "isOpen" -> isOpen[0];
                case "async" -> async;
                case "closeAsync" -> {
                    isOpen[0] = false;
                    yield CompletableFuture.completedFuture(null);
                }
                case "hashCode" -> System.identityHashCode(proxy);
                case "equals" -> proxy == arguments[0];
                default -> null;
            };
        });
    }

    private void serve(RedisCommand<byte[], byte[], Object> command) {
        List<MemoryLocks.Message> messages;
        CommandOutput<byte[], byte[], Object> output = command.getOutput();
        synchronized (locks) {
            try {
                Object reply = locks.reply(words(command));
                // As Lettuce, which withholds this reply.
                if (!"QUEUED".equals(reply)) {
                    write(output, reply);
                }
            } catch (MemoryLocks.Refusal refused) {
                output.setError(refused.getMessage());
            }
            messages = locks.settle();
        }
        output.complete(0);
        command.complete();
        messages.forEach(this::publish);
    }

    private void publish(MemoryLocks.Message message) {
        channels.get(message.channel()).message(bytes(message.channel()), bytes(message.text()));
    }

    private static List<String> words(RedisCommand<byte[], byte[], Object> command) {
        List<String> words = new ArrayList<>(List.of(command.getType().toString()));
        ByteBuf buffer = Unpooled.buffer();
        command.getArgs().encode(buffer);
        while (buffer.isReadable()) {
            int end = buffer.bytesBefore((byte) '\r');
            String length = buffer.readCharSequence(end, StandardCharsets.US_ASCII).toString().substring(1);
            buffer.skipBytes(2);
            words.add(buffer.readCharSequence(Integer.parseInt(length), StandardCharsets.ISO_8859_1).toString());
            buffer.skipBytes(2);
        }
        return words;
    }

    private static void write(CommandOutput<byte[], byte[], Object> output, @Nullable Object reply) {
        if (reply instanceof Long number) {
            output.set(number);
        } else if (reply instanceof List<?> list) {
            output.multi(list.size());
            list.forEach(each -> write(output, each));
        } else {
            output.set(reply == null ? null : ByteBuffer.wrap(bytes(reply.toString())));
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }
}
