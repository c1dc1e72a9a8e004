package redislock.internal.tickets;

/** What the desk does next for a line. */
public sealed interface Step<R> {
    /** Nothing is due, or the reply to a request that goes alone is awaited. */
    record Done<R>() implements Step<R> {}

    /** Nothing before this moment. */
    record Pause<R>(long until) implements Step<R> {}

    /**
     * A request to send.
     *
     * @param number  the number of the ticket
     * @param line    its line
     * @param request its request
     * @param channel the channel of the line
     * @param isAlone whether no other request of the line is sent before this one is done with
     * @param epoch   the epoch of the subscription
     */
    record Ask<R>(long number, int line, R request, byte[] channel, boolean isAlone, long epoch) implements Step<R> {}
}
