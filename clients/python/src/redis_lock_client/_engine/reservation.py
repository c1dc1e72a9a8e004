"""The reservation of an owner name: one acquisition per server, key and owner at a time in this process.

To the server an owner is one flow of control; it cannot distinguish two threads or tasks that use one name. A
withdrawal by the first would release what the second has just been granted, and both would believe that they hold one
grant. So an acquisition under a fixed name reserves that name in this process, in all of its event loops, until the
hold is released and none of its requests can still be served. A freed name is given to the first acquisition that waits
for it: of several keys, to the first one for which all names are free.

A name whose hold is released, and whose requests only have no answer yet, is no sign of another holder. An acquisition
that finds it so at its end has an error, as one that gets no answer itself.

A release of an exclusive lock without a token names no mode, nor does one of several keys: it would end a hold of the
owner in another mode too. So such a request is not undone while the owner holds the lock in another mode, or asks for
it; and such an acquisition waits while the request is being undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Iterable
from typing import NamedTuple, Optional

from ..errors import NoAnswer
from .commands import Claim
from .moment import left
from .source import Source

#: The interval at which a wait for a name checks whether the event loop that reserved it was closed.
_LOOK = 0.5
#: The kinds that one release without a mode ends: see `Kind.word`.
_MODES = (b"", b"READ", b"WRITE")


class Name(NamedTuple):
    """What is reserved."""

    server: str
    key: bytes
    owner: bytes
    kind: bytes

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Name({self.key!r})"

    def in_other_modes(self) -> list[Name]:
        """The names of the same owner for the other modes of the lock."""
        return [self._replace(kind=mode) for mode in _MODES if mode != self.kind] if self.kind in _MODES else []


class _Wait:
    """A wait for names, in its event loop."""

    __slots__ = ("_loop", "_woken", "names", "owner", "reservation")

    def __init__(self, owner: Names, names: tuple[Name, ...]) -> None:
        self.owner = owner
        self.names = names
        #: The names, once they are given to this wait. Changed with the lock.
        self.reservation: Optional[Reservation] = None
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()

    @property
    def can_run(self) -> bool:
        """Whether its event loop runs. In another one a given name would stay reserved and unused."""
        return self._loop.is_running()

    @property
    def is_over(self) -> bool:
        """Whether its event loop was closed."""
        return self._loop.is_closed()

    def renew(self) -> None:
        """Waits for the next time that it is woken."""
        if self._woken.done():
            self._woken = self._loop.create_future()

    def wake(self) -> None:
        """The names are given to it, or its wait is over. Called by any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def wait(self, span: float) -> None:
        await asyncio.wait({self._woken}, timeout=span)


class Reservation:
    """Names that are reserved together, one for each key. Closing it frees them."""

    __slots__ = ("__weakref__", "_owner", "is_settling", "names")

    def __init__(self, owner: Names, names: tuple[Name, ...], is_settling: bool = False) -> None:
        self._owner = owner
        self.names = names
        #: Whether nothing is held or asked for under the names any more, and they only wait for answers of the server.
        self.is_settling = is_settling

    @property
    def is_over(self) -> bool:
        """Whether its event loop was closed, and so nothing can free the name any more."""
        return self._owner.loop.is_closed()

    @property
    def is_for_all_modes(self) -> bool:
        """Whether a release without a token would end a hold of the owner in another mode."""
        return len(self.names) > 1 or self.names[0].kind == b""

    @property
    def has_other_mode(self) -> bool:
        """Whether such a release would end something now."""
        with _lock:
            return self.is_for_all_modes and _has_other_mode(self.names)

    def close(self) -> None:
        self._owner.free(self)


class Names:
    """The names that one engine has reserved, or waits for."""

    def __init__(self, source: Source) -> None:
        self.loop = asyncio.get_running_loop()
        self._source = source
        self._server = source.data_name
        #: Changed with the lock, because any thread may give a name to a wait.
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
        with _lock:
            reserved = list(self._reserved)
        for reservation in reserved:
            self.free(reservation)

    def try_reserve(self, names: tuple[Name, ...]) -> Optional[Reservation]:
        """Reserves these names to undo a late request, if all are free and that can end nothing else of the owner."""
        with _lock:
            reservation = Reservation(self, names, is_settling=True)
            if _blocking(names) or reservation.has_other_mode:
                return None
            self._add(reservation)
            return reservation

    def _add(self, reservation: Reservation) -> None:
        self._reserved.add(reservation)
        for name in reservation.names:
            _reserved[name] = reservation

    def give(self, wait: _Wait) -> bool:
        """Gives a wait of this engine its names, if all are free. Called by any thread, with the lock."""
        if wait.reservation is None and not _blocking(wait.names):
            wait.reservation = Reservation(self, wait.names)
            self._add(wait.reservation)
            _leave(wait)
        return wait.reservation is not None

    async def reserve(self, claim: Claim, end: Optional[float], over: Optional[float]) -> Optional[Reservation]:
        """Reserves the owner's name for all keys together; None when it was not free at ``end``. A name that only waits
        for answers of the server is waited for until ``over``, as those answers may come soon.

        :raises NoAnswer: when the answers have not come by then.
        """
        names = tuple(Name(self._server, key, claim.owner, claim.kind.word) for key in claim.keys)
        wait = _Wait(self, names)
        self._waits.add(wait)
        try:
            while not self._is_closed:
                wait.renew()
                with _lock:
                    is_given = self.give(wait)
                    is_settling = not is_given and all(one.is_settling for one in _blocking(names))
                    if not is_given:
                        _enter(wait)
                limit = over if is_settling else end
                if is_given:
                    reservation, wait.reservation = wait.reservation, None
                    return reservation
                if not left(limit):
                    if not is_settling:
                        return None
                    raise NoAnswer(self._source.name, "no answer in time to an earlier request of the same owner")
                await wait.wait(min(left(limit), _LOOK))
            return None
        finally:
            self._waits.discard(wait)
            with _lock:
                _leave(wait)
                unused = wait.reservation
            if unused is not None:
                unused.close()

    def free(self, reservation: Reservation) -> None:
        """Frees the names, and gives them to the first waits that can have them."""
        with _lock:
            self._reserved.discard(reservation)
            freed = [name for name in reservation.names if _reserved.get(name) is reservation]
            for name in freed:
                del _reserved[name]
            if reservation.is_for_all_modes:
                freed += [other for name in freed for other in name.in_other_modes()]
            given = _give_to_first(freed)
        for wait in given:
            wait.wake()


# With the lock:

_lock = threading.RLock()
_reserved: dict[Name, Reservation] = {}
#: The waits for each name, the first one first.
_waiting: dict[Name, dict[_Wait, None]] = {}


def _blocking(names: Iterable[Name]) -> list[Reservation]:
    """What keeps these names from being reserved: who has them, and what is being undone in all modes."""
    found = [_reserved[name] for name in names if name in _reserved]
    others = [_reserved[other] for name in names for other in name.in_other_modes() if other in _reserved]
    found += [other for other in others if other.is_settling and other.is_for_all_modes]
    return [one for one in found if not one.is_over]


def _has_other_mode(names: Iterable[Name]) -> bool:
    found = (_reserved.get(other) for name in names for other in name.in_other_modes())
    return any(one is not None and not one.is_over for one in found)


def _enter(wait: _Wait) -> None:
    """Joins the queue of each name. In there already, it keeps its place."""
    for name in wait.names:
        _waiting.setdefault(name, {})[wait] = None


def _leave(wait: _Wait) -> None:
    for name in wait.names:
        queue = _waiting.get(name, {})
        queue.pop(wait, None)
        if not queue:
            _waiting.pop(name, None)


def _give_to_first(names: Iterable[Name]) -> list[_Wait]:
    """Gives these names to the first waits that can have all of theirs."""
    given = []
    for name in names:
        for wait in list(_waiting.get(name, ())):
            if wait.is_over:
                _leave(wait)
            elif wait.can_run and wait.owner.give(wait):
                given.append(wait)
                break
    return given


def _begin_anew() -> None:
    """A forked child has reserved nothing."""
    global _lock
    _lock = threading.RLock()
    _reserved.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_begin_anew)
