/** A lock registry of Spring Integration on a {@link redislock.LockClient}. */
@NullMarked
package redislock.spring;

import org.jspecify.annotations.NullMarked;
