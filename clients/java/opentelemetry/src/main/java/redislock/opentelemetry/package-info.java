/** What a {@link redislock.LockClient} does, as metrics and spans of OpenTelemetry. */
@NullMarked
package redislock.opentelemetry;

import org.jspecify.annotations.NullMarked;
