/** The counters of a {@link redislock.LockClient} as meters of Micrometer. */
package redislock.micrometer;
