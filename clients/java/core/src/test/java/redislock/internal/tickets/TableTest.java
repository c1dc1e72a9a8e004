package redislock.internal.tickets;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import redislock.internal.Clock;
import redislock.internal.Moment;

/** The table of tickets, without connections and without a clock. */
class TableTest {
    private static final int LINE = -1;
    private static final String NODE = "a:1";
    private static final byte[] CHANNEL = "c".getBytes(StandardCharsets.US_ASCII);
    private static final long NOW = 1_000_000_000L;

    private final Table<String, String> table = new Table<>();
    private final List<Outcome> outcomes = new ArrayList<>();

    private long file() {
        return table.file(LINE, "request", () -> CHANNEL, outcomes::add, NOW);
    }

    private Step.Ask<String> ask() {
        return ask(NOW);
    }

    @SuppressWarnings("unchecked")
    private Step.Ask<String> ask(long now) {
        return (Step.Ask<String>) assertInstanceOf(Step.Ask.class, table.next(LINE, now));
    }

    private boolean answer(Step.Ask<String> ask, Answer answer) {
        boolean wants = table.answered(ask, answer, NOW);
        table.done(ask);
        return wants;
    }

    private void subscribe() {
        Step.Ask<String> first = ask();
        assertTrue(first.isAlone(), "nothing else is sent before a subscription");
        assertInstanceOf(Step.Done.class, table.next(LINE, NOW));
        assertTrue(table.answered(first, new Answer.NoSubscriber(), NOW));
        table.subscribed(LINE, NODE, 1);
        table.done(first);
    }

    private static Message message(long number, Message.Kind kind, String code) {
        return new Message(number, kind, code);
    }

    private static Answer granted(long token) {
        return new Answer.Granted(new long[] {token}, Moment.now());
    }

    @Test
    void a_ticket_waits_for_its_message() {
        long number = file();
        subscribe();
        assertFalse(answer(ask(), new Answer.Queued(NODE)));
        assertTrue(table.isQueued(number) && table.mayBeThere(number));
        table.message(message(number, Message.Kind.GRANTED, ""), NOW);
        assertInstanceOf(Outcome.Announced.class, outcomes.get(0));
        table.message(message(number, Message.Kind.GRANTED, ""), NOW);
        assertEquals(1, outcomes.size(), "once");
    }

    @Test
    void requests_go_in_the_order_of_their_tickets() {
        for (int i = 0; i < 5; i++) {
            file();
        }
        subscribe();
        List<Long> sent = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Step.Ask<String> ask = ask();
            sent.add(ask.number());
            assertFalse(ask.isAlone());
            answer(ask, new Answer.Queued(NODE));
        }
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L), sent);
        assertInstanceOf(Step.Done.class, table.next(LINE, NOW));
        // After the end of the subscription all ask again, in the same order.
        assertEquals(List.of(LINE), table.closed(1));
        assertEquals(1, ask().number());
    }

    @Test
    void a_grant_before_the_reply_ends_the_ticket_and_other_messages_wait_for_it() {
        long one = file();
        long two = file();
        subscribe();
        Step.Ask<String> first = ask();
        Step.Ask<String> second = ask();
        table.message(message(one, Message.Kind.GRANTED, ""), NOW);
        assertInstanceOf(Outcome.Announced.class, outcomes.get(0));
        table.message(message(two, Message.Kind.TIMED_OUT, ""), NOW);
        assertEquals(1, outcomes.size());
        answer(first, new Answer.Queued(NODE));
        answer(second, new Answer.Queued(NODE));
        assertInstanceOf(Outcome.TimedOut.class, outcomes.get(1));
    }

    @Test
    void a_reply_of_a_former_subscription_asks_again() {
        long number = file();
        subscribe();
        Step.Ask<String> ask = ask();
        table.closed(1);
        assertFalse(answer(ask, new Answer.Queued(NODE)), "another request finds out what the line needs");
        assertFalse(table.isQueued(number));
        assertEquals(number, ask().number());
    }

    @Test
    void a_reply_of_another_node_wants_a_subscription_there() {
        file();
        subscribe();
        assertTrue(answer(ask(), new Answer.Queued("b:2")));
        assertTrue(table.maySubscribe(LINE));
    }

    @Test
    void failures_pause_longer_and_longer_and_go_one_by_one() {
        file();
        file();
        subscribe();
        long now = NOW;
        long last = 0;
        for (int i = 0; i < 7; i++) {
            Step.Ask<String> ask = ask(now);
            table.answered(ask, new Answer.Later(0), now);
            table.done(ask);
            Step.Pause<?> pause = assertInstanceOf(Step.Pause.class, table.next(LINE, now));
            assertTrue(pause.until() - now >= last);
            last = pause.until() - now;
            now = pause.until();
            assertTrue(table.isAlone(LINE));
        }
        assertEquals(500 * Clock.MILLI, last);
        Step.Ask<String> ask = ask(now);
        table.answered(ask, new Answer.Queued(NODE), now);
        table.done(ask);
        assertFalse(table.isAlone(LINE), "an answer ends the probing");
    }

    @Test
    void a_passing_failure_asks_again_and_another_one_ends() {
        long one = file();
        long two = file();
        subscribe();
        answer(ask(), new Answer.Queued(NODE));
        answer(ask(), new Answer.Queued(NODE));
        table.message(message(one, Message.Kind.FAILED, "MOVED"), NOW);
        assertEquals(List.of(), outcomes);
        assertInstanceOf(Step.Pause.class, table.next(LINE, NOW));
        table.message(message(two, Message.Kind.FAILED, "LOCKBROKEN"), NOW);
        assertEquals("LOCKBROKEN", assertInstanceOf(Outcome.Refused.class, outcomes.get(0)).code());
    }

    @Test
    void a_busy_server_parks_the_wait_and_a_draining_one_does_not() {
        long one = file();
        subscribe();
        answer(ask(), new Answer.Busy());
        assertInstanceOf(Outcome.Park.class, outcomes.get(0));
        table.askAgain(one);
        answer(ask(), new Answer.Queued(NODE));
        table.message(message(one, Message.Kind.FAILED, "DRAINED"), NOW);
        Step.Ask<String> again = ask(NOW + Clock.MILLI * 1_000);
        answer(again, new Answer.Busy());
        assertEquals(1, outcomes.size(), "it passes");
    }

    @Test
    void a_server_without_tickets_parks_the_line_until_the_evidence_is_void() {
        file();
        Step.Ask<String> ask = ask();
        answer(ask, new Answer.Unsupported());
        table.park(LINE, "evidence", false, NOW);
        assertInstanceOf(Outcome.Park.class, outcomes.get(0));
        assertEquals("evidence", table.parking(LINE, Clock.NEVER - 1));
        table.endParking(LINE);
        assertNull(table.parking(LINE, NOW));
        table.park(LINE, "evidence", true, NOW);
        assertNull(table.parking(LINE, NOW + 31_000 * Clock.MILLI), "for a while");
    }

    @Test
    void three_subscriptions_in_vain_are_enough() {
        file();
        for (int i = 0; i < 3; i++) {
            assertTrue(table.maySubscribe(LINE));
            table.subscribed(LINE, NODE, i);
        }
        assertFalse(table.maySubscribe(LINE));
        answer(ask(), new Answer.Queued(NODE));
        assertTrue(table.maySubscribe(LINE), "an answer while subscribed begins anew");
    }

    @Test
    void an_unanswered_request_may_be_there() {
        long number = file();
        subscribe();
        Step.Ask<String> ask = ask();
        assertEquals(77, table.underWayUntil(number, 77), "under way");
        answer(ask, new Answer.Later(99));
        assertEquals(99, table.underWayUntil(number, 77));
        assertTrue(table.mayBeThere(number));
        table.remove(number, NOW);
        assertEquals(0, table.underWayUntil(number, 77));
    }

    @Test
    void an_unused_subscription_is_closed_after_a_while() {
        long number = file();
        subscribe();
        answer(ask(), granted(7));
        assertInstanceOf(Outcome.Granted.class, outcomes.get(0));
        assertInstanceOf(Beat.Probe.class, table.beat(1, NOW));
        table.remove(number, NOW);
        assertInstanceOf(Beat.Rest.class, table.beat(1, NOW + 29_000 * Clock.MILLI));
        assertInstanceOf(Beat.Close.class, table.beat(1, NOW + 30_000 * Clock.MILLI));
    }

    @Test
    void a_subscription_that_the_server_ends_makes_its_tickets_due() {
        long number = file();
        subscribe();
        answer(ask(), new Answer.Queued(NODE));
        assertNull(table.channelEnded(2, CHANNEL), "another connection");
        assertEquals(LINE, table.channelEnded(1, CHANNEL));
        assertEquals(number, ask().number());
    }

    @Test
    void a_message_has_an_outcome_and_a_tag() {
        assertEquals(message(7, Message.Kind.GRANTED, ""), read("granted 1795215970812000 7"));
        assertEquals(message(7, Message.Kind.GRANTED, ""), read("granted 12,13,14 7"));
        assertEquals(message(8, Message.Kind.TIMED_OUT, ""), read("timeout 8"));
        assertEquals(message(9, Message.Kind.FAILED, "LOCKBROKEN"), read("failed LOCKBROKEN 9"));
        for (String text : List.of("", "granted", "granted 1", "timeout x", "failed 9", "hello 1 2", "granted 1 7 8",
                "timeout -1", "timeout 99999999999999999999")) {
            assertNull(read(text), text);
        }
        assertNull(Message.read(new byte[] {'t', ' ', (byte) 0xff}));
    }

    private static Message read(String text) {
        return Message.read(text.getBytes(StandardCharsets.UTF_8));
    }
}
