/** A lock provider of ShedLock on a {@link redislock.LockClient}. */
@NullMarked
package redislock.shedlock;

import org.jspecify.annotations.NullMarked;
