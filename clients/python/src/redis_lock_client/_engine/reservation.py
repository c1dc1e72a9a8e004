"""The reservation of an owner name: one acquisition per server, key and owner at a time in this process.

To the server an owner is one flow of control; it cannot distinguish two threads or tasks that use one name. A
withdrawal by the first would release what the second has just been granted, and both would believe that they hold one
grant. So an acquisition under a fixed name reserves that name in this process, in all of its event loops, until the
hold is released and none of its requests can still be served.

A name whose hold is released, and whose requests only have no answer yet, is no sign of another holder. An acquisition
that finds it so at its end has an error, as one that gets no answer itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from typing import NamedTuple, Optional

from ..errors import NoAnswer
from .commands import Claim
from .moment import left
from .source import Source

#: The interval at which a wait for a name checks whether the event loop that reserved it was closed.
_LOOK = 0.5


class Name(NamedTuple):
    """What is reserved."""

    server: str
    key: bytes
    owner: bytes
    kind: bytes

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Name({self.key!r})"


class _Wait:
    """A wait for a name, in its event loop."""

    __slots__ = ("_freed", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._freed: asyncio.Future[None] = self._loop.create_future()

    def renew(self) -> None:
        """Waits for the next time that the name is freed."""
        if self._freed.done():
            self._freed = self._loop.create_future()

    def wake(self) -> None:
        """The name is free. Called by any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._freed.done():
            self._freed.set_result(None)

    async def wait(self, span: float) -> None:
        await asyncio.wait({self._freed}, timeout=span)


class Reservation:
    """Names that are reserved together, one for each key. Closing it frees them."""

    __slots__ = ("__weakref__", "_owner", "is_settling", "names", "waits")

    def __init__(self, owner: Names, names: tuple[Name, ...], is_settling: bool = False) -> None:
        self._owner = owner
        self.names = names
        #: Whether nothing is held or asked for under the names any more, and they only wait for answers of the server.
        self.is_settling = is_settling
        #: The waits for one of the names, the first one first.
        self.waits: dict[_Wait, None] = {}

    @property
    def is_over(self) -> bool:
        """Whether its event loop was closed, and so nothing can free the name any more."""
        return self._owner.loop.is_closed()

    def close(self) -> None:
        self._owner.free(self)


class Names:
    """The names that one engine has reserved, or waits for. Used by the engine's thread."""

    def __init__(self, source: Source) -> None:
        self.loop = asyncio.get_running_loop()
        self._source = source
        self._server = source.data_name
        self._reserved: weakref.WeakSet[Reservation] = weakref.WeakSet()
        self._waits: set[_Wait] = set()
        self._is_closed = False

    def close(self) -> None:
        """Ends all waits for a name."""
        self._is_closed = True
        for wait in list(self._waits):
            wait.wake()

    def free_all(self) -> None:
        """Frees all names: the engine is closed."""
        for reservation in list(self._reserved):
            self.free(reservation)

    def try_reserve(self, names: tuple[Name, ...]) -> Optional[Reservation]:
        """Reserves these names for an undoing, if all are free."""
        with _lock:
            return self._reserve(names, None, is_settling=True)

    def _reserve(
        self, names: tuple[Name, ...], wait: Optional[_Wait], is_settling: bool = False
    ) -> Optional[Reservation]:
        """The same, and otherwise this wait is woken when the first one that is not free is."""
        found = [_reserved[name] for name in names if name in _reserved]
        for before in found:
            if not before.is_over:
                if wait is not None:
                    before.waits[wait] = None
                return None
        reservation = Reservation(self, names, is_settling)
        self._reserved.add(reservation)
        for before in found:
            reservation.waits.update(before.waits)
        for name in names:
            _reserved[name] = reservation
        return reservation

    async def reserve(self, claim: Claim, end: Optional[float], over: Optional[float]) -> Optional[Reservation]:
        """Reserves the owner's name for all keys together; None when it was not free at ``end``. A name that only waits
        for answers of the server is waited for until ``over``, as those answers may come soon.

        :raises NoAnswer: when the answers have not come by then.
        """
        names = tuple(Name(self._server, key, claim.owner, claim.kind.word) for key in claim.keys)
        wait = _Wait()
        self._waits.add(wait)
        try:
            while not self._is_closed:
                wait.renew()
                with _lock:
                    reservation = self._reserve(names, wait)
                    is_settling = reservation is None and self._is_settling(names)
                limit = over if is_settling else end
                if reservation is not None or (not left(limit) and not is_settling):
                    return reservation
                if not left(limit):
                    raise NoAnswer(self._source.name, "no answer in time to an earlier request of the same owner")
                await wait.wait(min(left(limit), _LOOK))
            return None
        finally:
            self._waits.discard(wait)
            with _lock:
                for name in names:
                    if name in _reserved:
                        _reserved[name].waits.pop(wait, None)

    @staticmethod
    def _is_settling(names: tuple[Name, ...]) -> bool:
        """Whether those of the names that are not free only wait for answers."""
        found = [_reserved[name] for name in names if name in _reserved]
        return all(one.is_settling or one.is_over for one in found)

    def free(self, reservation: Reservation) -> None:
        """Frees the names: all that wait for one of them try again."""
        self._reserved.discard(reservation)
        with _lock:
            for name in reservation.names:
                if _reserved.get(name) is reservation:
                    del _reserved[name]
            waits, reservation.waits = reservation.waits, {}
        for wait in waits:
            wait.wake()


_reserved: dict[Name, Reservation] = {}
_lock = threading.RLock()


def _begin_anew() -> None:
    """A forked child has reserved nothing."""
    global _lock
    _lock = threading.RLock()
    _reserved.clear()


os.register_at_fork(after_in_child=_begin_anew)
