package redislock.internal.tickets;

import redislock.internal.Moment;

/** What the server replied to the request of a ticket. */
public sealed interface Answer {
    /** Granted at once. */
    record Granted(long[] tokens, Moment sent) implements Answer {}

    /** Queued by this node. */
    record Queued(String node) implements Answer {}

    /** {@code NOSUBSCRIBER}. */
    record NoSubscriber() implements Answer {}

    /** {@code LOCKBUSY}. */
    record Busy() implements Answer {}

    /** No reply, or an error that passes. The request may be served until this moment; zero: it was not served. */
    record Later(long unansweredUntil) implements Answer {}

    /** The server takes no tickets. */
    record Unsupported() implements Answer {}

    /** Refused for good. */
    record Failed(RuntimeException error) implements Answer {}
}
