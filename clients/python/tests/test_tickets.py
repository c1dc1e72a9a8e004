"""The part that decides about tickets, without connections; and replies, slots and the clocks."""

from __future__ import annotations

import random
from typing import Any, Optional

import pytest

from redis_lock_client._engine import moment, resp, slot
from redis_lock_client._engine.commands import millis
from redis_lock_client._engine.tickets.table import MAX_IDLE, Table
from redis_lock_client._engine.tickets.ticket import (
    Announced,
    Answer,
    Ask,
    Busy,
    Close,
    Failed,
    FailedBy,
    Granted,
    Later,
    Message,
    NoSubscriber,
    Outcome,
    Park,
    PauseUntil,
    Probe,
    Queued,
    Rest,
    TimedOut,
    Unsupported,
    read_message,
)
from redis_lock_client.errors import Refused

NODE = "node:1"
SENT = moment.Moment()


class Line:
    """A table with one line and a clock."""

    def __init__(self) -> None:
        self.table = Table()
        self.now = 0.0
        self.outcomes: dict[int, list[Outcome]] = {}

    def file(self) -> int:
        got: list[Outcome] = []
        number = self.table.file(None, "request", got.append, lambda: b"channel", self.now)
        self.outcomes[number] = got
        return number

    def ask(self) -> Optional[Ask]:
        self.table.begin_work(None)
        step = self.table.next(None, self.now)
        if isinstance(step, PauseUntil):
            self.now = step.moment
            step = self.table.next(None, self.now)
        return step if isinstance(step, Ask) else None

    def answer(self, answer: Answer) -> bool:
        ask = self.ask()
        assert ask is not None, "nothing is due"
        return self.table.answered(ask, answer, self.now)

    def subscribed(self, number: int = 1) -> None:
        self.table.subscribed(None, NODE, number)

    def queued(self) -> int:
        """A ticket in the server's queue."""
        number = self.file()
        if number == 1:
            self.subscribed()
        assert not self.answer(Queued(NODE))
        assert self.table.is_queued(number)
        return number


def test_the_first_ticket_subscribes_and_asks_again() -> None:
    line = Line()
    number = line.file()
    assert line.answer(NoSubscriber()), "a subscription is needed"
    line.subscribed()
    assert not line.answer(Queued(NODE))
    line.table.message(number, Message("granted"), 0)
    assert line.outcomes[number] == [Announced()]
    assert line.ask() is None


def test_a_grant_by_the_reply() -> None:
    line = Line()
    number = line.file()
    line.answer(Granted((7,), SENT))
    assert line.outcomes[number] == [Granted((7,), SENT)]


def test_a_grant_that_nothing_has_read_yet_may_be_there() -> None:
    line = Line()
    number = line.file()
    line.answer(Granted((7,), SENT))
    assert line.table.may_be_there(number)
    number = line.file()
    ask = line.ask()
    assert ask is not None
    line.table.message(number, Message("granted"), 0)
    line.table.answered(ask, Queued(NODE), 0)
    assert line.table.may_be_there(number)


def test_a_message_may_come_before_the_reply() -> None:
    line = Line()
    line.subscribed()
    for word, outcome in (("granted", Announced()), ("timeout", TimedOut())):
        number = line.file()
        line.subscribed()
        ask = line.ask()
        assert ask is not None
        line.table.message(number, Message(word), 0)
        line.table.answered(ask, Queued(NODE), 0)
        assert line.outcomes[number] == [outcome]


def test_asking_again_after_the_end_of_a_subscription_in_order() -> None:
    line = Line()
    numbers = [line.queued() for _ in range(20)]
    assert line.table.closed(1) == [None]
    asked = []
    while True:
        ask = line.ask()
        if ask is None:
            break
        asked.append(ask.id)
    assert asked == numbers


def test_a_reply_of_an_older_subscription_is_asked_for_again() -> None:
    line = Line()
    number = line.file()
    line.subscribed()
    ask = line.ask()
    assert ask is not None
    line.table.closed(1)
    line.subscribed(2)
    line.table.answered(ask, Queued(NODE), 0)
    assert not line.table.is_queued(number)
    line.answer(Queued(NODE))
    assert line.table.is_queued(number)


def test_failures_that_pass_and_those_that_end_the_wait() -> None:
    for code in ("UNBLOCKED", "DRAINED", "MOVED", "CLUSTERDOWN"):
        line = Line()
        number = line.queued()
        line.table.message(number, Message("failed", code), 0)
        assert line.outcomes[number] == []
        assert not line.answer(Queued(NODE))
    line = Line()
    number = line.queued()
    line.table.message(number, Message("failed", "LOCKBROKEN"), 0)
    assert line.outcomes[number] == [FailedBy("LOCKBROKEN")]


def test_a_busy_server_parks_the_wait_and_a_draining_one_does_not() -> None:
    line = Line()
    number = line.file()
    line.answer(Busy())
    assert line.outcomes[number] == [Park()]
    line = Line()
    number = line.queued()
    line.table.message(number, Message("failed", "DRAINED"), 0)
    for _ in range(5):
        line.answer(Busy())
    assert line.outcomes[number] == []


def test_parking_until_the_evidence_is_void() -> None:
    line = Line()
    first, second = line.file(), line.file()
    line.answer(Unsupported())
    line.table.park(None, "evidence", False, 0)
    assert line.outcomes[first] == line.outcomes[second] == [Park()]
    assert line.table.parking(None, 1e9) == "evidence"
    line.table.park(None, "evidence", True, 0)
    assert line.table.parking(None, 29) == "evidence"
    assert line.table.parking(None, 31) is None


def test_subscriptions_that_do_not_help_are_limited() -> None:
    line = Line()
    line.file()
    for _ in range(3):
        assert line.table.may_subscribe(None)
        line.answer(NoSubscriber())
        line.subscribed()
        line.table.closed(1)
    assert not line.table.may_subscribe(None)


def test_a_lost_reply_is_asked_for_again_after_a_growing_pause() -> None:
    line = Line()
    number = line.file()
    line.subscribed()
    moments = []
    for _ in range(9):
        ask = line.ask()
        assert ask is not None
        moments.append(line.now)
        line.table.answered(ask, Later(line.now + 5), line.now)
        assert line.table.may_be_there(number)
        assert line.table.under_way_until(number, 0) == line.now + 5
    pauses = [after - before for before, after in zip(moments, moments[1:])]
    assert pauses[0] == pytest.approx(0.02)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(0.5)


def test_an_idle_subscription_ends() -> None:
    line = Line()
    number = line.queued()
    assert line.table.beat(1, 0) == Probe(b"channel", [])
    line.table.remove(number, 5)
    assert line.table.beat(1, 6) == Rest()
    assert line.table.beat(1, 5 + MAX_IDLE) == Close()
    assert line.table.beat(2, 0) == Close()


def test_a_failed_request_ends_the_wait() -> None:
    line = Line()
    number = line.file()
    error = Refused("host:1", "WRONGTYPE", "")
    line.answer(Failed(error))
    assert line.outcomes[number] == [Failed(error)]


@pytest.mark.parametrize("seed", range(30))
def test_no_ticket_is_forgotten(seed: int) -> None:
    """Random events: at the end, a ticket is over, parked, or will be asked for."""
    chance = random.Random(seed)
    line = Line()
    asks: list[Ask] = []
    connection = 0
    for _ in range(400):
        what = chance.randrange(7)
        line.now += chance.random() / 10
        if what == 0 and len(line.outcomes) < 30:
            line.file()
        elif what == 1:
            line.table.begin_work(None)
            step = line.table.next(None, line.now)
            if isinstance(step, Ask):
                asks.append(step)
        elif what == 2 and asks:
            answers: list[Any] = [Queued(NODE), Queued(NODE), NoSubscriber(), Later(None), Later(line.now + 5)]
            line.table.answered(asks.pop(chance.randrange(len(asks))), chance.choice(answers), line.now)
        elif what == 3:
            connection += 1
            line.subscribed(connection)
        elif what == 4:
            line.table.closed(connection)
        elif what == 5 and line.outcomes:
            number = chance.choice(list(line.outcomes))
            word = chance.choice([Message("timeout"), Message("failed", "MOVED")])
            line.table.message(number, word, line.now)
        elif what == 6 and line.outcomes:
            line.table.ask_again(chance.choice(list(line.outcomes)))
    connection += 1
    line.subscribed(connection)
    for ask in asks:
        line.table.answered(ask, Queued(NODE), line.now)
    for _ in range(200):
        line.table.begin_work(None)
        step = line.table.next(None, line.now)
        if isinstance(step, PauseUntil):
            line.now = step.moment
        elif isinstance(step, Ask):
            line.table.answered(step, Queued(NODE), line.now)
        else:
            break
    for number, got in line.outcomes.items():
        assert line.table.is_queued(number) or got, f"ticket {number} waits for nothing"


def test_messages() -> None:
    assert read_message(b"granted 1795215970812000 7") == (7, Message("granted"))
    assert read_message(b"granted 12,13,14 7") == (7, Message("granted"))
    assert read_message(b"timeout 8") == (8, Message("timeout"))
    assert read_message(b"failed LOCKBROKEN 9") == (9, Message("failed", "LOCKBROKEN"))
    for text in (
        b"",
        b"granted",
        b"granted 1",
        b"timeout x",
        b"failed 9",
        b"hello 1 2",
        b"granted 1 7 8",
        b"timeout -1",
    ):
        assert read_message(text) is None


def test_replies_in_any_pieces() -> None:
    data = (
        b":1795\r\n+QUEUED\r\n-ERR NOTIFY is off\r\n$-1\r\n_\r\n$5\r\na\r\nbc\r\n*2\r\n:1\r\n*-1\r\n"
        b"%1\r\n$1\r\nk\r\n:2\r\n>2\r\n+message\r\n:1\r\n#t\r\n,1.5\r\n|1\r\n+a\r\n+b\r\n:9\r\n"
    )
    whole = resp.Parser().feed(data)
    for size in (1, 2, 3, 7, 50):
        parser = resp.Parser()
        pieces = [data[place : place + size] for place in range(0, len(data), size)]
        replies = [reply for piece in pieces for reply in parser.feed(piece)]
        assert [_plain(reply) for reply in replies] == [_plain(reply) for reply in whole]
    simple = [1795, "QUEUED", "ERR NOTIFY is off", None, None, b"a\r\nbc"]
    assert [_plain(reply) for reply in whole] == [*simple, [1, None], [b"k", 2], ["message", 1], True, b"1.5", 9]
    assert isinstance(whole[8], resp.Push)
    for wrong in (b"HTTP/1.1 400\r\n", b":x\r\n", b"*x\r\n"):
        with pytest.raises(resp.ProtocolError):
            resp.Parser().feed(wrong)


def _plain(reply: Any) -> Any:
    return reply.text if isinstance(reply, resp.ErrorReply) else reply


def test_requests() -> None:
    assert resp.pack(b"GET", b"\xff", 12) == b"*3\r\n$3\r\nGET\r\n$1\r\n\xff\r\n$2\r\n12\r\n"
    assert [millis(span) for span in (0.001999, 0.29, 1.005, 30)] == [1, 290, 1005, 30_000]


def test_slots() -> None:
    assert slot.slot_of(b"foo") == 12_182 == slot.slot_of(b"x{foo}y")
    assert slot.slot_of(b"{}foo") != slot.slot_of(b"foo")
    for number in (0, 1, 12_182, 16_383):
        assert slot.slot_of(slot.name_in_slot(b"lock:tickets:x", number)) == number


def test_the_larger_elapsed_time_counts() -> None:
    one = moment.Moment()
    one.wall -= 3_600
    assert one.elapsed() >= 3_600
    one.wall += 7_200
    assert 0 <= one.elapsed() < 60
