/** A lock registry of Spring Integration on a {@link redislock.LockClient}. */
package redislock.spring;
