/** Beans of a Spring Boot application: a client and what uses it. */
package redislock.boot;
