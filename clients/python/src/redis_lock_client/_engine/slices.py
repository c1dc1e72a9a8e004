"""The slices of a parked wait.

A slice ends before the response timeout of its connection. The next one is sent earlier, through another connection,
and takes over the place of its predecessor, which then gets nil. So the wait is in the server's queue without a gap and
is never overtaken.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ..errors import Error
from .caller import Caller
from .commands import Command
from .moment import Moment, latest, now

if TYPE_CHECKING:
    from .engine import Engine


class Answer(NamedTuple):
    """The reply to a slice."""

    #: A moment before the slice was sent.
    sent: Moment
    reply: Any
    error: Optional[Error]
    #: Whether no later slice was sent.
    is_newest: bool


class _Slice(NamedTuple):
    sent: Moment
    caller: Caller
    task: asyncio.Task[Any]


class ParkedSlices:
    """The slices of a wait that were sent and not answered yet, the oldest first: usually one, briefly two."""

    __slots__ = ("_engine", "_key", "_slices", "_spare", "_under_way_until")

    def __init__(self, engine: Engine, key: bytes) -> None:
        self._engine = engine
        self._key = key
        self._slices: list[_Slice] = []
        #: The caller of a finished slice, with its connection (if that works) and its route, for the next one.
        self._spare: Optional[Caller] = None
        self._under_way_until: Optional[float] = None

    def send(self, command: Command, span: float) -> None:
        """Sends a request that is parked for ``span`` seconds."""
        caller, self._spare = self._spare or Caller(self._engine, self._key, waits=True), None
        task = self._engine.spawn(caller.call(command, span + self._engine.patience / 2))
        self._slices.append(_Slice(Moment(), caller, task))

    @property
    def is_empty(self) -> bool:
        """Whether no slice is without an answer."""
        return not self._slices

    def under_way_until(self) -> Optional[float]:
        """The time until which a request without a reply may still be served."""
        unanswered = now() + self._engine.patience if self._slices else None
        return latest(unanswered, self._under_way_until)

    async def next(self, due: Optional[float]) -> Optional[Answer]:
        """Waits for the next reply or, while only one slice is parked, until ``due``; None then."""
        while self._slices:
            timeout = None if due is None or len(self._slices) > 1 else max(0.0, due - now())
            tasks = [one.task for one in self._slices]
            done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for place, one in enumerate(self._slices):
                if one.task in done:
                    return self._answer(place)
            if timeout is not None:
                return None
        return None

    def _answer(self, place: int) -> Answer:
        one = self._slices.pop(place)
        is_newest = place == len(self._slices)
        reply: Any = None
        error: Optional[Error] = None
        try:
            reply = one.task.result()
        except Error as failure:
            error = failure
        if one.caller.was_unanswered():
            self._under_way_until = now() + self._engine.patience
        if self._spare is not None:
            self._spare.keep_open()
        self._spare = one.caller
        return Answer(one.sent, reply, error, is_newest)

    async def finish(self, patience: float) -> None:
        """Waits for the pending replies, for at most ``patience`` seconds."""
        if self._slices:
            await asyncio.wait([one.task for one in self._slices], timeout=patience)
            for place in reversed(range(len(self._slices))):
                if self._slices[place].task.done():
                    self._answer(place)

    def close(self) -> None:
        """Closes the connections of pending slices, and the server removes the wait. An idle one goes to the pool."""
        for one in self._slices:
            one.task.cancel()
            one.caller.close()
        self._slices.clear()
        if self._spare is not None:
            self._spare.keep_open()
            self._spare = None
