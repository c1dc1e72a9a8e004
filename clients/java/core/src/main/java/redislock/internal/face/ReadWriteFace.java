package redislock.internal.face;

import redislock.FencedLock;
import redislock.FencedReadWriteLock;

/**
 * The two sides of a read-write lock.
 *
 * @param readLock  of the mode READ
 * @param writeLock of the mode WRITE
 */
public record ReadWriteFace(FencedLock readLock, FencedLock writeLock) implements FencedReadWriteLock {}
