/** Locks, read-write locks, semaphores and latches of the redis-lock module. */
module redislock.client {
    requires transitive lettuce.core;
    requires static org.jspecify;
    // Lettuce names no modules, and resolves none of Netty's.
    requires io.netty.common;
    requires io.netty.handler;
    requires io.netty.buffer;
    requires io.netty.resolver.dns;

    exports redislock;
}
