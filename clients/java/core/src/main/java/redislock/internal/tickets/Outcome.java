package redislock.internal.tickets;

import redislock.internal.Moment;

/** What a wait learns of its ticket. */
public sealed interface Outcome {
    /** The reply to the request: the tokens, and a moment before it was sent. */
    record Granted(long[] tokens, Moment sent) implements Outcome {}

    /** A message says so, which proves nothing. */
    record Announced() implements Outcome {}

    /** The time of {@code BLOCK} is over. */
    record TimedOut() implements Outcome {}

    /** The request was refused. */
    record Failed(RuntimeException error) implements Outcome {}

    /** A message with this code says so. */
    record Refused(String code) implements Outcome {}

    /** No tickets here, or no place for this one: wait with a connection. */
    record Park() implements Outcome {}
}
