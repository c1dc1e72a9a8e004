package redislock.internal.tickets;

import java.util.function.Consumer;

/** A ticket of the table. */
final class Ticket<R> {
    /** Due: a request is to be sent. Asking: no reply yet. Queued: in the server. Over: the outcome is delivered. */
    enum State { DUE, ASKING, QUEUED, OVER }

    final int line;
    final R request;
    final Consumer<Outcome> listener;
    State state = State.DUE;
    /** A message that came before the reply. */
    Message early;
    /** Requests without a reply yet. */
    int inFlight;
    /** Whether the server may have it in a queue, or may have granted it. */
    boolean isThere;
    /** Until when a request without a reply may be served; zero: none. */
    long unansweredUntil;

    Ticket(int line, R request, Consumer<Outcome> listener) {
        this.line = line;
        this.request = request;
        this.listener = listener;
    }
}
