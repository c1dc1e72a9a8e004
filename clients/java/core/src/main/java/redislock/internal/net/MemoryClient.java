package redislock.internal.net;

import io.lettuce.core.ConnectionBuilder;
import io.lettuce.core.ConnectionEvents;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.resource.ClientResources;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.local.LocalAddress;
import io.netty.channel.local.LocalChannel;
import io.netty.channel.local.LocalIoHandler;
import io.netty.channel.local.LocalServerChannel;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import reactor.core.publisher.Mono;

/**
 * Lettuce's client on connections that end in the memory of this process, where a server grants every lock. The first
 * connection of a process loads a thousand classes, which takes longer than the bound of a wait: a {@code LockClient}
 * loads them with this one when it is built. It sends nothing and opens no port.
 */
final class MemoryClient extends RedisClient {
    private static final String HELLO = "%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n"
            + "$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n";

    private final EventLoopGroup loops = new MultiThreadIoEventLoopGroup(
            1, new DefaultThreadFactory("redis-lock-start", true), LocalIoHandler.newFactory());
    private final SocketAddress address = new LocalAddress("redis-lock-" + UUID.randomUUID());

    MemoryClient(ClientResources resources) {
        super(resources, new RedisURI());
        new ServerBootstrap().group(loops).channel(LocalServerChannel.class).childHandler(new Accepting())
                .bind(address).syncUninterruptibly();
    }

    @Override
    protected void connectionBuilder(Mono<SocketAddress> addresses, ConnectionBuilder builder, ConnectionEvents events,
            RedisURI uri) {
        super.connectionBuilder(addresses, builder, events, uri);
        // Loads the classes of sockets, and starts an event loop: the socket is closed before it is used.
        builder.bootstrap().clone().handler(new ChannelInboundHandlerAdapter()).register()
                .addListener(ChannelFutureListener.CLOSE);
        builder.bootstrap(new Bootstrap().group(loops).channel(LocalChannel.class));
        builder.socketAddressSupplier(Mono.just(address));
    }

    void end() {
        shutdown(0, 1, TimeUnit.SECONDS);
        loops.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly(1, TimeUnit.SECONDS);
    }

    private static final class Accepting extends ChannelInitializer<Channel> {
        @Override
        protected void initChannel(Channel channel) {
            channel.pipeline().addLast(new Answering());
        }
    }

    /** The server. Lettuce writes whole requests. */
    private static final class Answering extends SimpleChannelInboundHandler<ByteBuf> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, ByteBuf requests) {
            StringBuilder replies = new StringBuilder();
            while (requests.isReadable()) {
                String word = word(requests);
                replies.append(word.equals("HELLO") ? HELLO : word.startsWith("LOCK.") ? ":1\r\n" : "+OK\r\n");
            }
            context.writeAndFlush(Unpooled.copiedBuffer(replies, StandardCharsets.US_ASCII));
        }

        /** Reads a request, and returns its first word. */
        private static String word(ByteBuf requests) {
            int words = number(requests);
            String first = null;
            for (int i = 0; i < words; i++) {
                int length = number(requests);
                String word = requests.readCharSequence(length, StandardCharsets.US_ASCII).toString();
                requests.skipBytes(2);
                first = first == null ? word : first;
            }
            return String.valueOf(first);
        }

        /** Reads a line that has a number after its type. */
        private static int number(ByteBuf requests) {
            int length = requests.bytesBefore((byte) '\r');
            String line = requests.readCharSequence(length, StandardCharsets.US_ASCII).toString();
            requests.skipBytes(2);
            return Integer.parseInt(line.substring(1));
        }
    }
}
