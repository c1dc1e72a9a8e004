/** Beans of a Spring Boot application: a client and what uses it. */
@NullMarked
package redislock.boot;

import org.jspecify.annotations.NullMarked;
