"""An acquisition in progress: granted, it becomes a hold; given up, it is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Optional, Union, cast

from ..errors import Closed, Error, NoAnswer
from . import commands
from .hold import Hold, Leftovers, OnLost
from .moment import left, now
from .release import First, Undo
from .reservation import Reservation
from .session import SessionAttempt
from .terms import OVERTIME, Terms
from .wait import Asked, Grant, Request, Wait

if TYPE_CHECKING:
    from .engine import Engine


async def acquire(engine: Engine, terms: Terms, wait: Optional[float], on_lost: Optional[OnLost]) -> Optional[Hold]:
    """Acquires the lock, waiting for at most ``wait`` seconds, or without a limit. None: not in time.

    :raises Error: when the server refuses, or was not reached within the limit.
    """
    engine.begin_use()
    counts = engine.counts
    try:
        hold = await _acquire(engine, terms, wait)
    except Error:
        counts.acquisitions_failed += 1
        raise
    finally:
        engine.end_use()
    if hold is None:
        counts.acquisitions_refused += 1
    else:
        # It may be lost already: since the grant in a task of its own, the connection of a session may have ended.
        hold.tell(on_lost)
        counts.acquisitions += 1
    return hold


async def _acquire(engine: Engine, terms: Terms, wait: Optional[float]) -> Optional[Hold]:
    end = None if wait is None else now() + wait
    over = None if end is None else end + OVERTIME
    claim = terms.claim()
    reservation: Optional[Reservation] = None
    if terms.owner is not None:
        reservation = await engine.names.reserve(claim, end, over)
        if reservation is None:
            engine.check_open()
            return None
    if terms.is_session:
        session = SessionAttempt(engine, terms, claim, reservation)
        return await _go_on(engine, session, session.run(end), over)
    attempt = _Attempt(engine, terms, claim, reservation)
    try:
        asked = await attempt.wait.try_once(over)
        grant = attempt.wait.grant(asked)
        if grant is not None:
            hold = attempt.granted(grant)
            if engine.is_closing:
                hold.give_back()
            engine.check_open()
            return hold
        engine.check_open()
        if asked.tokens is None and asked.error is None and not left(end):
            attempt.undo()
            return None
    except BaseException:
        attempt.undo()
        raise
    return await _go_on(engine, attempt, attempt.run(asked, end), over)


async def _go_on(
    engine: Engine,
    attempt: Union[_Attempt, SessionAttempt],
    work: Coroutine[Any, Any, Optional[Hold]],
    over: Optional[float],
) -> Optional[Hold]:
    """Goes on in a task of the engine, which its closing cancels, and gives up at ``over``."""
    task = engine.spawn_wait(work, attempt.undo)
    try:
        done, _ = await asyncio.wait({task}, timeout=None if over is None else max(0.0, over - now()))
    except BaseException:
        _give_up(task, attempt)
        raise
    if not done:
        _give_up(task, attempt)
        raise NoAnswer(engine.name) from attempt.failure
    if task.cancelled():
        attempt.undo()
        raise Closed("the server object was closed during the wait")
    error = task.exception()
    if error is not None:
        attempt.undo()
        if engine.is_closing and isinstance(error, Error):
            raise Closed("the server object was closed during the wait") from error
        raise error
    hold = cast(Optional[Hold], task.result())
    if hold is None:
        attempt.undo()
    elif engine.is_closing:
        hold.give_back()
        raise Closed("the server object was closed during the wait")
    return hold


def _give_up(task: asyncio.Task[Optional[Hold]], attempt: Union[_Attempt, SessionAttempt]) -> None:
    if task.done() and not task.cancelled() and task.exception() is None:
        hold = task.result()
        if hold is not None:
            hold.give_back()
            return
    task.cancel()
    attempt.undo()


class _Attempt:
    """The request in progress. :meth:`undo` withdraws the wait and releases what may have been granted meanwhile."""

    def __init__(self, engine: Engine, terms: Terms, claim: commands.Claim, reservation: Optional[Reservation]) -> None:
        self._engine = engine
        self._terms = terms
        self._claim = claim
        self._reservation = reservation
        self._is_over = False
        request = Request(
            claim.key,
            commands.acquire(claim, terms.lease),
            terms.longest_slice(engine.patience),
            terms.reported_after,
            len(claim.keys),
            claim=claim,
            is_named=terms.owner is not None,
        )
        self.wait = Wait(engine, request)

    @property
    def failure(self) -> Optional[Error]:
        """The error of the last request that failed."""
        return self.wait.failure

    async def run(self, asked: Asked, end: Optional[float]) -> Optional[Hold]:
        """Sends the request until it is granted or ``end`` has come."""
        granted = await self.wait.run(asked, end)
        return None if granted is None else self.granted(granted)

    def granted(self, grant: Grant) -> Hold:
        """The hold of a usable grant."""
        self._is_over = True
        leftovers = Leftovers(self.wait.under_way_until(), self._reservation)
        parked = self.wait.close()
        if parked is not None:
            parked.close()
        return Hold(self._engine, self._terms, self._claim, grant.tokens, grant.sent, leftovers)

    def undo(self) -> None:
        """Undoes the request at the server. Does nothing after a grant, or when called again."""
        if self._is_over:
            return
        self._is_over = True
        wait = self.wait
        until = wait.under_way_until()
        # One that can no longer be served may have been granted before.
        was_unanswered = until is not None
        if until is not None and until <= now():
            until = None
        has_ticket = wait.has_ticket
        # The server keeps the place of an ended wait for a while, so that the owner can ask again. A fresh owner never
        # does, so its place is withdrawn. A named owner may do so, and may have been granted the lock meanwhile.
        keeps_place = wait.was_queued and self._reservation is None
        parked = wait.close()
        first = First.TICKET if has_ticket else First.NOTHING
        if not has_ticket and (keeps_place or was_unanswered):
            first = First.EVERYTHING
        undo = Undo(
            self._engine,
            self._claim,
            self._terms.lease,
            first,
            acquires_until=until,
            reservation=self._reservation,
            parked=parked,
        )
        undo.start()
