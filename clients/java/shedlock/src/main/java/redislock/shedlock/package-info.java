/** A lock provider of ShedLock on a {@link redislock.LockClient}. */
package redislock.shedlock;
