package redislock.internal.tickets;

import java.util.List;

/** What the keeper of a subscribed connection does next. */
public sealed interface Beat {
    /** No line has had a ticket for a while: close the connection. */
    record Close() implements Beat {}

    /** No ticket, for now. */
    record Rest() implements Beat {}

    /** Subscribe to the first channel again; the others have been idle. */
    record Probe(byte[] channel, List<byte[]> unused) implements Beat {}
}
