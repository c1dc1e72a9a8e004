"""Leader election: the leader is the holder of a lock, and the note beside the hold says where it is."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Optional

from ._locks import Client
from ._requests import info
from ._terms import Key, Text
from .errors import Error


class Leader(NamedTuple):
    """The leader of an election."""

    #: What it said of itself: its address, for example. Empty if it said nothing.
    note: bytes
    #: The fencing token of its leadership.
    token: int


class AnyElection(Generic[Client]):
    """An election, for threads or asyncio."""

    _lock_class: Any

    def __init__(self, redis: Client, name: Key, **options: Any) -> None:
        self._arguments, self._options = (redis, name), options
        # Checks the arguments.
        self._lock = self._candidacy("", {})
        self._interval = self._lock._terms.lease / 3

    def _candidacy(self, note: Text, options: dict[str, Any]) -> Any:
        return self._lock_class(*self._arguments, note=note, **{**self._options, **options})

    async def _leader(self) -> Optional[Leader]:
        """The present leader; None if there is none (``LOCK.INFO``, for which the user needs permission).

        :raises ConnectionFailed: when the server cannot be reached.
        """
        found = await info(self._lock._hub.here(), self._lock._terms.key)
        return next((Leader(holder.note or b"", holder.token or 0) for holder in found.holders), None)

    async def _look(self, last: Any) -> Any:
        """The present leader; the last one while the server cannot be asked."""
        try:
            return await self._leader()
        except Error as error:
            if not error.is_passing:
                raise
            return last
