"""The reservation of an owner name: one acquisition per key and owner at a time.

To the server an owner is one flow of control; it cannot distinguish two tasks that use one name. A withdrawal by the
first would release what the second has just been granted, and both would believe that they hold one grant. So an
acquisition under a fixed name reserves that name, until the hold is released and none of its requests can still be
served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Optional

from .commands import Claim
from .moment import now


class Reservation:
    """A reserved name. Closing it frees the name."""

    __slots__ = ("_names", "name")

    def __init__(self, names: Names, name: tuple[bytes, bytes, bytes]) -> None:
        self._names = names
        self.name = name

    def close(self) -> None:
        self._names.free(self.name)


class Names:
    """The reserved names of a server."""

    def __init__(self) -> None:
        #: Those who wait for a name, by name.
        self._reserved: dict[tuple[bytes, bytes, bytes], deque[asyncio.Future[None]]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Ends all waits for a name."""
        self._is_closed = True
        for waiting in list(self._reserved.values()):
            self._wake(waiting)

    def try_reserve(self, name: tuple[bytes, bytes, bytes]) -> Optional[Reservation]:
        """Reserves this name if it is free."""
        if name in self._reserved:
            return None
        self._reserved[name] = deque()
        return Reservation(self, name)

    async def reserve(self, claim: Claim, end: Optional[float]) -> Optional[Reservation]:
        """Reserves the owner's name; None when it was not free in time."""
        name = (claim.key, claim.owner, claim.kind.word)
        while not self._is_closed:
            reservation = self.try_reserve(name)
            if reservation is not None:
                return reservation
            loop = asyncio.get_running_loop()
            freed: asyncio.Future[None] = loop.create_future()
            self._reserved[name].append(freed)
            span = None if end is None else max(0.0, end - now())
            try:
                done, _ = await asyncio.wait({freed}, timeout=span)
            except asyncio.CancelledError:
                self._leave(name, freed)
                raise
            if not done:
                self._leave(name, freed)
                return None
        return None

    def free(self, name: tuple[bytes, bytes, bytes]) -> None:
        """Frees a name: the first that waits for it tries again."""
        self._wake(self._reserved.pop(name, deque()))

    def _wake(self, waiting: deque[asyncio.Future[None]]) -> None:
        # All try again: the first takes the name, the others wait behind it in the same order.
        for freed in list(waiting):
            if not freed.done():
                freed.set_result(None)

    def _leave(self, name: tuple[bytes, bytes, bytes], freed: asyncio.Future[None]) -> None:
        freed.cancel()
        waiting = self._reserved.get(name)
        if waiting is not None and freed in waiting:
            waiting.remove(freed)
