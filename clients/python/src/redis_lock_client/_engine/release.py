"""The release of a hold, and the undoing of an abandoned acquisition.

A request whose connection was closed may still be in a buffer of the network, or of a server that is paused. Served
later, it takes a lock for an owner that no longer exists. So it is undone three times: at once, a moment later, and
when it can no longer be served.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from ..errors import Error, Refused
from ..outcome import Released
from . import commands
from .caller import Caller
from .commands import Claim, Tokens
from .moment import Pause, latest, left, now
from .reservation import Name, Reservation
from .slices import ParkedSlices

if TYPE_CHECKING:
    from .engine import Engine

#: Time after which a server that is not paused has read a request that was sent.
_A_MOMENT = 0.1
#: Upper bound of failed releases that are kept: those of one lock of several keys, at least.
_MOST_FAILED = 2_000


class First(enum.Enum):
    """What the first release covers."""

    #: The grant with the tokens.
    GRANT = 1
    #: All holds and waits of the owner.
    EVERYTHING = 2
    #: The same, and a ticket may have been granted.
    TICKET = 3
    NOTHING = 4


class ReleaseResult(NamedTuple):
    """The result of a release that is sent until it is answered."""

    released: Released
    error: Optional[Error]
    #: The time until which an unanswered one may still be served.
    under_way_until: Optional[float]
    #: The keys that the error is about.
    failed: tuple[bytes, ...] = ()


async def release_until(
    engine: Engine, claim: Claim, tokens: Optional[Tokens], end: float, over: Optional[float] = None
) -> ReleaseResult:
    """Sends a release until it is answered, at least once. Several keys that are refused are released one by one.

    :param end: no further attempt begins after this moment.
    :param over: no attempt lasts beyond this moment.
    """
    caller = Caller(engine, claim.key)
    command = commands.release(claim, tokens)
    pause = Pause()
    until: Optional[float] = None
    while True:
        try:
            reply = await caller.call(command, engine.patience / 2, over)
            return ReleaseResult(commands.released(reply, engine.name, claim, until is not None), None, until)
        except Error as failure:
            error = failure
            if caller.was_unanswered():
                until = now() + engine.patience
        if claim.is_multi and isinstance(error, Refused) and (not error.is_passing or error.code == "TRYAGAIN"):
            return await _release_each(engine, claim, tokens, end, over, until)
        if not error.is_passing or now() + pause.next >= end:
            return ReleaseResult(Released.NOT_HELD, error, until, claim.keys)
        await pause.sleep()


async def _release_each(
    engine: Engine,
    claim: Claim,
    tokens: Optional[Tokens],
    end: float,
    over: Optional[float],
    until: Optional[float],
) -> ReleaseResult:
    """One of the keys holds something else by now, the user may not release several together, or their slot moves from
    node to node, and then no request with keys of both is served."""
    released = Released.YES
    failure: Optional[Error] = None
    failed: list[bytes] = []
    for place, one in enumerate(claim.each()):
        if failure is not None and failure.is_passing and now() >= end:
            # An attempt lasts for up to half of the response timeout, and there may be many keys.
            failed.append(one.key)
            continue
        result = await release_until(engine, one, None if tokens is None else (tokens[place],), end, over)
        until = latest(until, result.under_way_until)
        error = result.error
        if isinstance(error, Refused) and error.code in ("WRONGTYPE", "LOCKTYPE"):
            released = Released.NOT_HELD
        elif error is not None:
            failure = failure or error
            failed.append(one.key)
        elif result.released is Released.NOT_HELD:
            released = Released.NOT_HELD
    return ReleaseResult(released, failure, until, tuple(failed))


class Undo:
    """A hold or a wait to be undone in the background."""

    def __init__(
        self,
        engine: Engine,
        claim: Claim,
        lease: float,
        first: First,
        *,
        tokens: Optional[Tokens] = None,
        ends: Optional[float] = None,
        acquires_until: Optional[float] = None,
        releases_until: Optional[float] = None,
        reservation: Optional[Reservation] = None,
        parked: Union[ParkedSlices, Caller, None] = None,
    ) -> None:
        self.engine = engine
        self.claim = claim
        self.lease = lease
        self.first = first
        self.tokens = tokens
        #: When the lease of what is to be released is over, if that is known.
        self.ends = ends
        #: The time until which an abandoned acquire may still be served.
        self.acquires_until = acquires_until
        #: The time until which an abandoned release may still be served.
        self.releases_until = releases_until
        self.reservation = reservation
        #: The connections of a wait. They are closed after its withdrawal: closed earlier, the server would keep the
        #: place in the queue for a while.
        self.parked = parked

    def start(self) -> None:
        """Starts the background task, if anything is to be undone."""
        has_release = self.releases_until is not None and self.reservation is not None
        is_needless = self.first is First.NOTHING and self.acquires_until is None and not has_release
        if is_needless or self.engine.is_closed:
            self._finish()
        else:
            if self.reservation is not None:
                self.reservation.is_settling = True
                is_of_owner = self.first in (First.EVERYTHING, First.TICKET)
                if is_of_owner and self.reservation.has_other_mode:
                    # Undone later, if the owner has nothing in another mode by then.
                    self.first = First.NOTHING
                    self.acquires_until = latest(self.acquires_until, now() + self.engine.patience)
            self.engine.background.begin(self)
            self.engine.spawn(self._run())

    async def send_first(self) -> None:
        """The first release."""
        if self.first is not First.NOTHING:
            tokens = self.tokens if self.first is First.GRANT else None
            result = await self._release(tokens, self.ends)
            error = result.error
            counts = self.engine.counts
            # If nothing can have been granted, a refusal is that of the acquire again and is no failure.
            may_hold = self.first in (First.GRANT, First.TICKET) or self.acquires_until is not None
            if error is not None and (may_hold or error.is_passing):
                counts.releases_failed += 1
                self.engine.background.fail(result.failed, error)
            elif error is None and self.first is First.GRANT:
                counts.releases += 1

    async def _run(self) -> None:
        await self.send_first()
        if self.parked is not None:
            self.parked.close()
            self.parked = None
        self.engine.background.end(self)
        last = self.acquires_until
        if last is None:
            await self._end_reservation()
            return
        names = None if self.reservation is None else self.reservation.names
        self.engine.background.late.add(self)
        try:
            for moment in (now() + _A_MOMENT, last):
                await self._sleep_until(moment)
                if names is None:
                    await self._release(None)
                elif not await self._release_late(self.claim, names) and self.claim.is_multi:
                    for one, name in zip(self.claim.each(), names):
                        await self._release_late(one, (name,))
                        await self._end_reservation()
            await self._end_reservation()
        finally:
            self.engine.background.late.discard(self)

    async def _sleep_until(self, moment: float) -> None:
        """Frees the names meanwhile, unless a release without a reply may be served still longer."""
        reservation, until = self.reservation, self.releases_until
        if until is None or until <= moment or (reservation is not None and reservation.has_other_mode):
            await self._end_reservation()
        await asyncio.sleep(max(0.0, moment - now()))

    async def _release_late(self, claim: Claim, names: tuple[Name, ...]) -> bool:
        """Releases under these names. False if another acquisition has reserved one of them meanwhile: the server
        counts the late request as that one's; or if the owner has a lock in another mode, which that would end."""
        if self.reservation is None:
            self.reservation = self.engine.names.try_reserve(names)
        if self.reservation is None:
            return False
        await self._release(None, claim=claim)
        return True

    async def _release(
        self, tokens: Optional[Tokens], ends: Optional[float] = None, claim: Optional[Claim] = None
    ) -> ReleaseResult:
        end = now() + self.lease if ends is None else ends
        result = await release_until(self.engine, claim or self.claim, tokens, end)
        self.releases_until = latest(self.releases_until, result.under_way_until)
        return result

    async def _end_reservation(self) -> None:
        """Waits until no release can still be served, which would end the next hold under this name."""
        if self.reservation is not None and self.releases_until is not None:
            await asyncio.sleep(max(0.0, self.releases_until - now()))
        self._finish()

    def _finish(self) -> None:
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.close()
        if self.parked is not None:
            self.parked.close()
            self.parked = None


class Background:
    """The releases that no caller waits for."""

    def __init__(self) -> None:
        self._running: set[Undo] = set()
        #: Those that have a reply, and release once more what a late request may take.
        self.late: set[Undo] = set()
        self._failed: list[tuple[bytes, Error]] = []
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self, undo: Undo) -> None:
        self._running.add(undo)

    def end(self, undo: Undo) -> None:
        self._running.discard(undo)
        if not self._running:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()

    def fail(self, keys: tuple[bytes, ...], error: Error) -> None:
        self._failed.extend((key, error) for key in keys)
        # A program that never calls `settled` must not fill its memory.
        del self._failed[:-_MOST_FAILED]

    @property
    def running(self) -> list[Undo]:
        """The releases that have no reply yet."""
        return list(self._running)

    async def idle(self, end: Optional[float]) -> None:
        """Waits until no release is under way, or ``end`` has come."""
        while self._running and left(end):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await asyncio.wait({waiter}, timeout=None if end is None else left(end))
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    async def settled(self, wait: Optional[float]) -> list[tuple[bytes, Error]]:
        """The same; the keys that could not be given back since the last call."""
        await self.idle(None if wait is None else now() + wait)
        failed, self._failed = self._failed, []
        return failed
