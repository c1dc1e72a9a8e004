/**
 * The implementation: not an interface for programs. {@code tickets} decides without connections and clocks, {@code
 * net} has the connections, {@code lock} acquires, renews and releases, {@code face} has what programs see.
 */
package redislock.internal;
