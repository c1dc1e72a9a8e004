"""Holds that are bound to a connection (``SESSION``): the server releases the lock when the connection ends.

Each has a connection of its own, which carries the acquisition and the wait and which the hold keeps. The server renews
the lease while the connection lives. After every third of the lease the hold asks on that connection whether it still
has the lock, because a paused server keeps its connections open while the leases end. That request names no lease, so
the hold stays bound.

If the network is broken, the server does not notice the end of the connection and renews the lease for as long as that
lasts. So whatever ends without an answer of the server is released through another connection: an abandoned
acquisition, a release, and a hold whose connection has failed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ..errors import ConnectionFailed, Error, Refused, bad_reply, of_reply
from ..outcome import LostReason, Mode
from . import commands
from .caller import Caller
from .commands import Claim, Command, Tokens
from .hold import FINAL, Hold, Leftovers
from .link import Link
from .moment import FIRST_PAUSE, Moment, Pause, left, now, part_of
from .release import First, Undo
from .reservation import Reservation
from .resp import ErrorReply, field, pack
from .terms import Terms

if TYPE_CHECKING:
    from .engine import Engine

#: The shortest time for which a request is parked.
_SHORTEST_SLICE = 0.001
#: How long a release without a reply is repeated. No lease bounds it, since the server renews that.
_RELEASED_FOR = 600.0
#: How many readers are read at a renewal, on average.
_READERS_READ = 4


class _Lease(NamedTuple):
    """The rest of a lease, and a moment before the request that has read it was sent."""

    left: float
    sent: Moment


async def _ask(link: Link, command: Command, patience: float) -> Any:
    """Sends a request on the connection of a hold, which no other connection replaces."""
    reply = await link.call(pack(*command), patience)
    if not isinstance(reply, ErrorReply):
        return reply
    if reply.text.partition(" ")[0] in ("MOVED", "ASK"):
        # The hold, if it lasts, is bound to nothing at the other node.
        error = ConnectionFailed(link.name, "the slot has moved to another node")
        link.close(error)
        raise error
    raise of_reply(link.name, reply.text)


class ReadersLease(NamedTuple):
    """The lease of sessions of a node, and how many readers were listed when it was read."""

    lease: float
    readers: int


async def _confirm(engine: Engine, link: Link, claim: Claim, tokens: Tokens, patience: float) -> Optional[_Lease]:
    """Asks whether the hold lasts, and reads its lease, which is a setting of the server. None: it does not last.

    ``LOCK.INFO`` lists all readers. If each of many readers read it at each renewal, the time for that would grow with
    the square of their number, so with more of them each reads it more rarely.
    """
    sent = Moment()
    if await _ask(link, commands.renew_bound(claim, tokens), patience) != 1:
        return None
    is_reader = claim.kind.mode is Mode.READ
    known = engine.readers_leases.get(link.name) if is_reader else None
    if known is not None and part_of(known.readers) > _READERS_READ:
        # The request has set this lease.
        return _Lease(known.lease, sent)
    sent = Moment()
    info = await _ask(link, (b"LOCK.INFO", claim.key), patience)
    holders = field(info, b"holders") or []
    for holder in holders:
        millis = field(holder, b"pttl")
        if field(holder, b"owner") == claim.owner and isinstance(millis, int) and millis >= 0:
            if is_reader:
                engine.readers_leases[link.name] = ReadersLease(millis / 1000, len(holders))
            return _Lease(millis / 1000, sent)
    return None


class SessionHold(Hold):
    """A lock that is held as long as its connection lives."""

    def __init__(
        self,
        engine: Engine,
        terms: Terms,
        claim: Claim,
        tokens: Tokens,
        lease: _Lease,
        leftovers: Leftovers,
        link: Link,
    ) -> None:
        self._link = link
        self._wanted_margin = terms.margin
        self._end: Optional[asyncio.TimerHandle] = None
        terms = terms._replace(lease=lease.left, margin=self._margin_of(lease))
        super().__init__(engine, terms, claim, tokens, lease.sent, leftovers)
        link.on_close = self._disconnected

    def _margin_of(self, lease: _Lease) -> Optional[float]:
        return None if self._wanted_margin is None else min(self._wanted_margin, lease.left / 2)

    def _disconnected(self) -> None:
        self.lose(LostReason.DISCONNECTED)

    def lose(self, reason: LostReason) -> None:
        if self._end is None:
            # The end of the connection would release the lock at once, and the holder has yet to stop.
            rest = max(0.0, self.lease - self.confirmed.elapsed())
            self._end = self.engine.loop.call_later(rest, self._end_lease)
        super().lose(reason)

    def _end_lease(self) -> None:
        """Ends a lost hold with its lease."""
        self._disconnect()
        if self.notice.reason in (LostReason.DISCONNECTED, LostReason.UNCONFIRMED):
            # The server may not have noticed the end of the connection.
            undo = Undo(self.engine, self.claim, self.lease, First.GRANT, tokens=self.tokens, ends=self.ends)
            undo.start()

    @property
    def ends(self) -> float:
        return now() + _RELEASED_FOR

    @property
    def may_last(self) -> bool:
        # With its lease a lost one is released in the background.
        return self.confirmed.steady + self.lease > now()

    def _disconnect(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._link.on_close = None
        self._link.close()

    def renewal(self, span: float) -> Command:
        return commands.renew_bound(self.claim, self.tokens)

    async def _renew(self) -> None:
        counts = self.engine.counts
        pause = max(self.lease / 20, 0.001)
        while self.notice.reason is None and not self.notice.is_over:
            try:
                # There is no other connection to try, so the request may take the whole lease.
                lease = await _confirm(self.engine, self._link, self.claim, self.tokens, self.lease)
            except Error as error:
                counts.renewals_failed += 1
                if isinstance(error, Refused) and error.code in FINAL:
                    self.lose(LostReason.refused(error.code, error.text))
                    return
            else:
                if lease is None:
                    counts.renewals_failed += 1
                    self.lose(LostReason.TAKEN)
                    return
                counts.renewals += 1
                self.margin = self._margin_of(lease)
                self._count_from(lease.sent, lease.left)
                return
            await asyncio.sleep(pause)


class SessionAttempt:
    """The request in progress. :meth:`undo` withdraws the wait and releases what may have been granted meanwhile."""

    def __init__(self, engine: Engine, terms: Terms, claim: Claim, reservation: Optional[Reservation]) -> None:
        self._engine = engine
        self._terms = terms
        self._claim = claim
        self._reservation = reservation
        self._caller = Caller(engine, claim.key, waits=True)
        #: The connection of a grant.
        self._link: Optional[Link] = None
        #: The time until which an abandoned request may still be served.
        self._until: Optional[float] = None
        #: Whether a grant was not confirmed. Its connection is closed, which the server may not notice.
        self._may_hold = False
        #: Whether the wait is counted in the statistics.
        self._waits = False
        self._is_over = False
        #: The error of the last request that failed.
        self.failure: Optional[Error] = None

    async def run(self, end: Optional[float]) -> Optional[Hold]:
        """Sends the request until it is granted or ``end`` has come."""
        span = 0.0
        pause = Pause()
        while True:
            begun = now()
            try:
                hold = await self._send(span)
            except Error as error:
                is_second, self.failure = self.failure is not None, error
                # After a broken connection there is a second attempt, however short the wait.
                if not error.is_passing or (is_second and not left(end)):
                    raise
                await pause.sleep(max(left(end), FIRST_PAUSE))
                if not await self._begin_again(end):
                    raise
                span = 0.0
                continue
            if hold is not None:
                return hold
            if not left(end):
                return None
            if now() - begun < span / 2:
                # Ended early, because another process waits under the same owner name.
                await pause.sleep(left(end))
            else:
                pause = Pause()
            # The server keeps the place in the queue from one request to the next.
            span = max(_SHORTEST_SLICE, min(left(end), self._engine.patience / 2))
            self._count()

    async def _send(self, span: float) -> Optional[Hold]:
        """Sends the request, parked for this time."""
        engine, claim = self._engine, self._claim
        command = commands.acquire_bound(claim)
        if span:
            command = commands.parked(command, span)
        reply = await self._caller.call(command, span + engine.patience / 2)
        tokens = commands.granted(reply, engine.name)
        if tokens is None:
            return None
        link = self._link = self._caller.detach()
        # An owner that held the lock before may have a longer lease, which this shortens.
        lease = await _confirm(engine, link, claim, tokens, engine.patience / 2)
        if lease is None:
            # Broken meanwhile.
            raise bad_reply(engine.name)
        if not link.is_open:
            raise ConnectionFailed(link.name, "the connection has ended")
        self._is_over = True
        self._uncount()
        self._link = None
        leftovers = Leftovers(self._under_way_until(), self._reservation)
        return SessionHold(engine, self._terms, claim, tokens, lease, leftovers, link)

    async def _begin_again(self, end: Optional[float]) -> bool:
        """After a failure. An abandoned request may be served late, and would bind the hold of its owner to a closed
        connection. So the next attempt has another owner; a named owner waits until the request can no longer be
        served. False when that is after ``end``."""
        if self._reservation is None:
            if self._has_left():
                self._undo(None)
                self._claim = self._terms.claim()
                self._caller = Caller(self._engine, self._claim.key, waits=True)
            return True
        if self._link is not None:
            self._link.close()
            self._link = None
            self._may_hold = True
            self._until = now() + self._engine.patience
        until = self._under_way_until()
        if until is None or until <= now():
            return True
        if end is not None and end < until:
            return False
        await asyncio.sleep(until - now())
        return True

    def _under_way_until(self) -> Optional[float]:
        if self._caller.was_unanswered():
            self._until = now() + self._engine.patience
        return self._until

    def _has_left(self) -> bool:
        """Whether the server may have something of the request."""
        return self._under_way_until() is not None or self._link is not None or self._may_hold

    def _count(self) -> None:
        if not self._waits:
            self._waits = True
            self._engine.counts.waits += 1
            self._engine.counts.waiting += 1

    def _uncount(self) -> None:
        if self._waits:
            self._waits = False
            self._engine.counts.waiting -= 1

    def undo(self) -> None:
        """Undoes the request at the server. Does nothing after a grant, or when called again."""
        if self._is_over:
            return
        self._is_over = True
        # The server keeps the place of an ended wait for a while; a named owner may ask again.
        keeps_place = self._waits and self._reservation is None
        self._uncount()
        if self._has_left() or keeps_place:
            self._undo(self._reservation)
            return
        self._caller.keep_open()
        if self._reservation is not None:
            self._reservation.close()

    def _undo(self, reservation: Optional[Reservation]) -> None:
        """Releases what this claim has, in the background."""
        until, self._until = self._under_way_until(), None
        link, self._link = self._link, None
        if link is not None:
            link.close()
        undo = Undo(
            self._engine,
            self._claim,
            _RELEASED_FOR,
            First.EVERYTHING if link is None and not self._may_hold else First.TICKET,
            acquires_until=until if until is not None and until > now() else None,
            reservation=reservation,
            parked=self._caller,
        )
        undo.start()
