package redislock.internal.tickets;

import java.util.function.Consumer;

/** A ticket of the table. */
final class Ticket<R> {
    /** Due: to be asked for. Asking: no reply yet. Queued: the server has it. Over: its outcome was delivered. */
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
