/**
 * The implementation: not an interface for programs. {@code tickets} decides without connections and clocks, {@code
 * net} has the connections, {@code lock} acquires, renews and releases, {@code face} implements the public interfaces.
 */
package redislock.internal;
