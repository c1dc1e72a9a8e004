"""The desk of a server: files tickets and sends their requests."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ...errors import Error, Refused, refused
from .. import commands
from ..caller import Caller
from ..dial import Endpoint
from ..moment import Moment, left, now
from ..router import Shared
from ..slot import name_in_slot, slot_of
from .subscription import Refusal, Subscriptions
from .table import Table
from .ticket import (
    Answer,
    Ask,
    Busy,
    Done,
    Failed,
    FailedBy,
    Granted,
    Later,
    Line,
    Message,
    NoSubscriber,
    Outcome,
    PauseUntil,
    Queued,
    Unsupported,
)

if TYPE_CHECKING:
    from ..engine import Engine

#: Upper bound of requests of one server that have no reply yet, besides one for each line.
_MAX_IN_FLIGHT = 100
#: How all names of channels begin.
_PREFIX = b"lock:tickets:"


class Request(NamedTuple):
    """The request of a ticket."""

    key: bytes
    #: Without ``BLOCK``, which is appended. Sent twice, it is granted once.
    command: commands.Command
    #: The number of keys.
    keys: int
    #: The longest time for which the server keeps the ticket.
    longest: float
    #: The end of the wait.
    end: Optional[float]


class Evidence(NamedTuple):
    """The shared connection through which a node has refused tickets. Void when that is another one."""

    node: Endpoint
    shared: Shared


class Desk:
    """The tickets of a server."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.table = Table()
        self.subscriptions = Subscriptions(self)
        self._in_flight = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._is_sharded = engine.router.source.is_cluster

    @property
    def is_sharded(self) -> bool:
        """Whether channels belong to slots."""
        return self._is_sharded

    def file(self, request: Request) -> Optional[TicketHandle]:
        """Files a ticket. None where tickets have been refused."""
        line = slot_of(request.key) if self._is_sharded else None
        evidence: Optional[Evidence] = self.table.parking(line, now())
        if evidence is not None:
            if self.engine.router.is_current(evidence.node, evidence.shared):
                return None
            self.table.end_parking(line)
        handle = TicketHandle(self, line)
        handle.number = self.table.file(line, request, handle.deliver, lambda: _channel_name(line), now())
        self.work_on(line)
        return handle

    def message(self, number: int, message: Message) -> None:
        """Handles a message of a subscribed connection."""
        found = self.table.message(number, message, now())
        if found is not None:
            self.work_on(found[0])

    def work_on(self, line: Line) -> None:
        """Starts the worker of a line, if a request is due and none runs."""
        if not self.engine.is_closed and self.table.begin_work(line):
            self.engine.spawn(self._work(line))

    async def _work(self, line: Line) -> None:
        """Sends the requests of a line until none is due."""
        while True:
            # A line whose node fails has one request under way, and takes no permit from the others.
            is_alone = self.table.is_alone(line)
            if not is_alone:
                await self._in_flight.acquire()
            step = self.table.next(line, now())
            if isinstance(step, Ask) and not is_alone and not step.is_alone:
                self.engine.spawn(self._ask_and_free(step))
                continue
            if not is_alone:
                self._in_flight.release()
            if isinstance(step, Done):
                return
            if isinstance(step, PauseUntil):
                await asyncio.sleep(max(0.0, step.moment - now()))
            else:
                await self._ask(step)

    async def _ask_and_free(self, ask: Ask) -> None:
        try:
            await self._ask(ask)
        finally:
            self._in_flight.release()

    async def _ask(self, ask: Ask) -> None:
        """Sends a request, handles the reply, and subscribes if the line needs it."""
        request: Request = ask.request
        patience = self.engine.patience
        caller = Caller(self.engine, request.key)
        # One millisecond more than is left, so that the server does not end the wait before its end.
        block = min(left(request.end) + 0.001, request.longest)
        command = commands.notified(request.command, block, ask.channel, ask.id)
        sent = Moment()
        answer: Answer
        try:
            reply = await caller.call(command, patience / 2)
            node = caller.answered_by
            if node is not None and (reply is None or reply == 0):
                # A replica ignores `NOTIFY`. The next request asks for the primary.
                self.engine.router.forget_shared(*node)
            tokens = commands.ticket(reply, self.engine.name, request.keys)
            name = node[0].name if node is not None else ""
            answer = Queued(name) if tokens is None else Granted(tokens, sent)
        except Error as error:
            unanswered_until = now() + patience if caller.was_unanswered() else None
            answer = _answer(error, unanswered_until)
            node = caller.answered_by
        wants_subscription = self.table.answered(ask, answer, now())
        if node is not None:
            if isinstance(answer, Unsupported):
                self.table.park(ask.line, Evidence(*node), False, now())
            elif wants_subscription:
                await self._subscribe_or_park(ask, node[0], Evidence(*node))
        self.work_on(ask.line)

    async def _subscribe_or_park(self, ask: Ask, node: Endpoint, evidence: Evidence) -> None:
        if not self.table.may_subscribe(ask.line):
            self.table.park(ask.line, evidence, True, now())
            return
        refusal = await self.subscriptions.subscribe(ask.line, ask.channel, node)
        if refusal is Refusal.FINAL:
            self.table.park(ask.line, evidence, False, now())
        elif refusal is not None:
            self.table.not_subscribed(ask.line, refusal is Refusal.PASSING, now())


class TicketHandle:
    """A filed ticket. Closing it ends the wait here; the server is not asked."""

    __slots__ = ("_desk", "_line", "_outcome", "_waiter", "number")

    def __init__(self, desk: Desk, line: Line) -> None:
        self._desk = desk
        self._line = line
        self.number = 0
        self._outcome: Optional[Outcome] = None
        self._waiter: Optional[asyncio.Future[None]] = None

    def deliver(self, outcome: Outcome) -> None:
        """The table has an outcome."""
        self._outcome = outcome
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def outcome(self, until: Optional[float]) -> Optional[Outcome]:
        """Waits for the outcome, at most until this moment; None then. May be cancelled and called again."""
        if self._outcome is None:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = None if until is None else loop.call_later(max(0.0, until - now()), _end, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        outcome = self._outcome
        if isinstance(outcome, FailedBy):
            return Failed(refused(self._desk.engine.name, outcome.code, "the wait has failed"))
        return outcome

    def ask_again(self) -> None:
        """Asks again: before the server ends the ticket, or after an outcome that did not end the wait."""
        self._outcome = None
        self._desk.table.ask_again(self.number)
        self._desk.work_on(self._line)

    @property
    def is_queued(self) -> bool:
        """Whether the server has queued the ticket."""
        return self._desk.table.is_queued(self.number)

    @property
    def may_be_there(self) -> bool:
        """Whether the server may have the ticket in a queue, or may have granted it."""
        return self._desk.table.may_be_there(self.number)

    def under_way_until(self) -> Optional[float]:
        """The time until which a request without a reply may still be served."""
        return self._desk.table.under_way_until(self.number, now() + self._desk.engine.patience)

    def close(self) -> None:
        """Ends the ticket here."""
        self._desk.table.remove(self.number, now())

    def expire(self) -> None:
        """Withdraws a ticket without an owner, which no release can: the same request with the shortest limit takes it
        over. Sent once."""
        found = self._desk.table.open(self.number)
        engine = self._desk.engine
        if found is not None and not engine.is_closed:
            request, channel = found
            command = commands.notified(request.command, 0.0, channel, self.number)
            engine.spawn(_send_once(engine, request.key, command))
        self.close()


async def _send_once(engine: Engine, key: bytes, command: commands.Command) -> None:
    # If it fails, the server ends the ticket at its limit.
    with contextlib.suppress(Error):
        await Caller(engine, key).call(command, engine.patience / 2)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _channel_name(line: Line) -> bytes:
    """A name that no other process knows; of a line in a cluster, in its slot."""
    name = _PREFIX + str(uuid.uuid4()).encode()
    return name if line is None else name_in_slot(name, line)


def _answer(error: Error, unanswered_until: Optional[float]) -> Answer:
    """The meaning of an error in reply to a ticket's request."""
    code: Any = error.code if isinstance(error, Refused) else None
    if code == "NOSUBSCRIBER":
        return NoSubscriber()
    if code == "LOCKBUSY":
        return Busy()
    if error.is_passing:
        return Later(unanswered_until)
    if code in ("ERR", "NOPERM", "CROSSSLOT"):
        # A syntax error, `NOTIFY is turned off`, a short `lock.max-wait`, no permission to publish; a cluster behind
        # the URL of one server. If the request itself is refused, the parked one is refused too.
        return Unsupported()
    return Failed(error)
