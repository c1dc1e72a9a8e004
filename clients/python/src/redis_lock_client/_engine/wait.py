"""A request that waits in the server until it is granted: the wait of a lock, a semaphore or a latch.

It is sent once without waiting, on the shared connection. If it is not granted then, it waits as a ticket, which
needs no connection (see ``tickets``). Where the server takes no tickets it is parked, in slices. The server keeps the
place in the queue (``lock.queue-grace``) between two slices and when a connection breaks: the same owner sends the
request again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

from ..errors import Error
from . import commands
from .caller import Caller
from .moment import FIRST_PAUSE, Moment, Pause, latest, left, now, part_of
from .release import release_until
from .slices import ParkedSlices
from .tickets import desk
from .tickets.ticket import Announced, Granted, Park, TimedOut

if TYPE_CHECKING:
    from .engine import Engine

#: How long a grant waits for the reply to the other slice.
_OTHER_SLICE = 0.1
#: How long after the end of a wait the message about its end may come.
_LATE_MESSAGE = 0.1
#: The longest time for which the server keeps a ticket. It is asked for again before, so this bounds how long the
#: ticket of a process that has died stays.
_LONGEST_TICKET = 30.0


class Request(NamedTuple):
    """The request and its limits."""

    key: bytes
    #: Without ``BLOCK``, which is appended. Sent twice, it is granted once.
    command: commands.Command
    #: The longest time for which one slice is parked.
    longest_slice: float
    #: How long after its request was sent a grant is usable.
    certain: float
    #: The number of keys, each of which is granted with a token.
    keys: int = 1
    #: Whether it grants something to an owner; a latch does not.
    has_owner: bool = True
    #: The keys and their owner; None for a latch.
    claim: Optional[commands.Claim] = None
    #: Whether other processes may use the owner's name.
    is_named: bool = False

    @property
    def longest_ticket(self) -> float:
        """How long the server keeps a ticket. A process that uses the name too takes it over without a message."""
        return self.longest_slice if self.is_named else _LONGEST_TICKET


class Asked(NamedTuple):
    """The reply to a request, or the error, and a moment before it was sent."""

    sent: Moment
    tokens: Optional[commands.Tokens] = None
    error: Optional[Error] = None


class Grant(NamedTuple):
    """The tokens, and a moment before their request was sent."""

    tokens: commands.Tokens
    sent: Moment


class Wait:
    """A waiting request. :meth:`close` ends it here; what the server has of it is the caller's to withdraw."""

    __slots__ = (
        "_engine",
        "_parked",
        "_quick",
        "_request",
        "_slice_end",
        "_slice_next",
        "_ticket",
        "_until",
        "_waits",
        "failure",
    )

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine = engine
        self._request = request
        #: For the requests that do not wait.
        self._quick = Caller(engine, request.key)
        self._ticket: Optional[desk.TicketHandle] = None
        self._parked: Optional[ParkedSlices] = None
        self._slice_end: Optional[float] = None
        self._slice_next = 0.0
        #: The time until which an abandoned request may still be served.
        self._until: Optional[float] = None
        #: Whether the wait is counted in the statistics.
        self._waits = False
        #: The error of the last request that failed.
        self.failure: Optional[Error] = None

    async def try_once(self, limit: Optional[float] = None) -> Asked:
        """Sends the request without waiting in the queue; given up at ``limit``."""
        engine = self._engine
        sent = Moment()
        try:
            reply = await self._quick.call(self._request.command, engine.patience / 2, limit)
            asked = Asked(sent, commands.granted(reply, engine.name, self._request.keys))
        except Error as error:
            if self._quick.was_unanswered():
                self._until = now() + engine.patience
            return Asked(sent, error=error)
        self._note_late(asked)
        return asked

    def _note_late(self, asked: Asked) -> None:
        """A grant that came after the usable part of the lease is asked for again, or withdrawn by the caller."""
        if asked.tokens is not None and self.grant(asked) is None:
            self._until = now() + self._engine.patience

    def grant(self, asked: Asked) -> Optional[Grant]:
        """The grant, if the reply is one that came within the usable part of the lease."""
        if asked.tokens is None or asked.sent.elapsed() >= self._request.certain:
            return None
        return Grant(asked.tokens, asked.sent)

    async def run(self, asked: Asked, end: Optional[float]) -> Optional[Grant]:
        """Sends the request until it is granted or ``end`` has come; ``asked`` is the first reply.

        :raises Error: when it is refused, or fails at the end.
        """
        pause = Pause()
        failures = 0
        while True:
            error = asked.error
            self.failure = error or self.failure
            if asked.tokens is not None:
                grant = self.grant(asked)
                if grant is not None:
                    if self._parked is not None:
                        await self._parked.finish(_OTHER_SLICE)
                    return grant
                self._note_late(asked)
                if failures and not left(end):
                    return None
                failures += 1
            elif error is None:
                if not left(end):
                    return None
                if self._slice_end is not None and now() < self._slice_next:
                    # Ended early, because another process waits under the same owner name.
                    await pause.sleep(left(end))
                else:
                    pause = Pause()
            elif not error.is_passing or (failures and not left(end)):
                raise error
            else:
                # After a broken connection there is a second attempt, however short the wait.
                failures += 1
                await pause.sleep(max(left(end), FIRST_PAUSE))
            asked = await self._wait(end) if left(end) else await self.try_once()

    async def _wait(self, end: Optional[float]) -> Asked:
        """Waits in the queue until a grant, a failure, or the end of the wait."""
        if (self._parked is None or self._parked.is_empty) and self._file(end):
            asked = await self._wait_for_ticket(end)
            if asked is not None:
                return asked
        return await self._wait_parked(end)

    def _file(self, end: Optional[float]) -> bool:
        """Files a ticket, or asks again for the one that is filed. False where the server takes none."""
        if self._ticket is not None:
            self._ticket.ask_again()
            return True
        tickets = self._engine.tickets
        if tickets is None:
            return False
        request = self._request
        self._ticket = tickets.file(
            desk.Request(request.key, request.command, request.keys, request.longest_ticket, end)
        )
        if self._ticket is not None:
            self._count()
        return self._ticket is not None

    async def _wait_for_ticket(self, end: Optional[float]) -> Optional[Asked]:
        """Waits for the outcome of the ticket. None: the wait is to be parked."""
        ticket = self._ticket
        if ticket is None:
            return None
        outcome = await self._outcome(ticket, end)
        has_owner = self._request.has_owner
        if not has_owner and isinstance(outcome, (Granted, Announced)):
            # The latch is open: the server has no ticket any more.
            ticket.close()
            self._ticket = None
            return Asked(Moment(), (1,))
        if isinstance(outcome, Granted):
            return Asked(outcome.sent, outcome.tokens)
        if outcome is None or isinstance(outcome, Announced):
            # A message proves nothing, and may be old: the lease counts from a request. The same after a missing one.
            asked = await self.try_once()
            if outcome is not None and asked.tokens is None and asked.error is None:
                await self._release_others()
            return asked
        if isinstance(outcome, TimedOut):
            return Asked(Moment())
        if isinstance(outcome, Park):
            self._until = latest(self._until, ticket.under_way_until())
            ticket.close()
            self._ticket = None
            return None
        return Asked(Moment(), error=getattr(outcome, "error", None))

    async def _release_others(self) -> None:
        """One of several keys was lost right after their grant: while it waits for that one again, the wait is to hold
        none of the others. Without an answer they stay held until their lease ends, or the wait is undone."""
        claim = self._request.claim
        if claim is not None and claim.is_multi:
            over = now() + self._engine.patience / 2
            result = await release_until(self._engine, claim, None, over, over)
            if result.error is not None:
                self._until = latest(self._until, result.under_way_until)

    async def _outcome(self, ticket: desk.TicketHandle, end: Optional[float]) -> Optional[object]:
        """None at the end of the wait."""
        longest = self._request.longest_ticket
        while True:
            # Spread, because many waits may have started at the same moment.
            due = now() + longest / 2 + part_of(longest / 4)
            is_last = end is not None and end < due
            until = end if is_last and end is not None else due
            outcome = await ticket.outcome(until)
            if outcome is not None:
                return outcome
            if is_last:
                return await ticket.outcome(until + _LATE_MESSAGE) if ticket.is_queued else None
            ticket.ask_again()

    async def _wait_parked(self, end: Optional[float]) -> Asked:
        """Waits with a connection until a grant, a failure, or the end of the last slice."""
        if self._parked is None:
            self._parked = ParkedSlices(self._engine, self._request.key)
        parked = self._parked
        if parked.is_empty:
            self._park(parked, end)
        while True:
            is_last = end is not None and self._slice_end is not None and end <= self._slice_end
            answer = await parked.next(None if is_last else self._slice_next)
            if answer is None:
                self._park(parked, end)
                continue
            is_over = parked.is_empty or (is_last and answer.is_newest)
            error = answer.error
            tokens = None
            if error is None:
                try:
                    tokens = commands.granted(answer.reply, self._engine.name, self._request.keys)
                except Error as failure:
                    error = failure
            # Otherwise another slice has taken over the place, or is still parked.
            if tokens is not None or is_over or (error is not None and not error.is_passing):
                return Asked(answer.sent, tokens, error)

    def _park(self, parked: ParkedSlices, end: Optional[float]) -> None:
        """Sends the next slice."""
        span = max(0.001, min(self._request.longest_slice, left(end)))
        self._count()
        parked.send(commands.parked(self._request.command, span), span)
        moment = now()
        self._slice_end = moment + span
        # Spread, because many waiters may have started at the same moment.
        self._slice_next = moment + span / 2 + part_of(span / 4)

    def _count(self) -> None:
        if not self._waits:
            self._waits = True
            self._engine.counts.waits += 1
            self._engine.counts.waiting += 1

    @property
    def was_queued(self) -> bool:
        """Whether the request was queued, so that the server may keep a place in the queue for it."""
        return self._waits

    @property
    def has_ticket(self) -> bool:
        """Whether the server may have a ticket of the request, or may have granted it."""
        return self._ticket is not None and self._ticket.may_be_there

    def under_way_until(self) -> Optional[float]:
        """The time until which an abandoned request may still be served."""
        if self._quick.was_unanswered():
            # The task of the last request was cancelled.
            self._until = now() + self._engine.patience
        parked = None if self._parked is None else self._parked.under_way_until()
        ticket = None if self._ticket is None else self._ticket.under_way_until()
        return latest(self._until, parked, ticket)

    def close(self) -> Optional[ParkedSlices]:
        """Ends the wait here. The parked connections are returned: they are closed after the wait's withdrawal."""
        if self._waits:
            self._waits = False
            self._engine.counts.waiting -= 1
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            if self._request.has_owner:
                ticket.close()
            else:
                ticket.expire()
        parked, self._parked = self._parked, None
        return parked
