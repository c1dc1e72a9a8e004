/** The counters of a {@link redislock.LockClient} as meters of Micrometer. */
@NullMarked
package redislock.micrometer;

import org.jspecify.annotations.NullMarked;
