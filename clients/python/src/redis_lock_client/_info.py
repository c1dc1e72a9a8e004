"""What the server says of a lock or a semaphore."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass(frozen=True)
class Holder:
    """An owner that holds a lock."""

    #: A credential: every client that knows it can release the lock. No ``repr`` shows it.
    owner: bytes = field(repr=False)
    #: What it says of itself (``note=``).
    note: Optional[bytes]
    #: The fencing token of its grant. None: a Redisson client took the lock.
    token: Optional[int]
    #: How often it holds the lock.
    holds: int
    #: The rest of its lease in seconds; None: without end.
    remaining: Optional[float]
    #: How long it has held the lock, in seconds. None: not known, as after a restart of the server.
    held: Optional[float]


@dataclass(frozen=True)
class LockInfo:
    """The holders and waiters of a lock (``LOCK.INFO``)."""

    #: ``"exclusive"``, ``"read"``, ``"write"``, or ``"string"`` for a key that ``SET`` has made; None: neither held nor
    #: waited for. Of a lock without a holder it is what its first waiter requests.
    mode: Optional[str] = None
    holders: tuple[Holder, ...] = ()
    waiters: int = 0
    #: How long the first waiter has waited, in seconds.
    longest_wait: float = 0.0

    def remaining_of(self, owner: bytes) -> Optional[float]:
        """The rest of the lease of an owner in seconds; None if it holds nothing."""
        return next((holder.remaining for holder in self.holders if holder.owner == owner), None)


@dataclass(frozen=True)
class SemaphoreInfo:
    """The state of a semaphore (``SEM.INFO``)."""

    #: The number of permits, held and free.
    permits: int
    #: The free permits; negative after a change to fewer permits than are held.
    free: int
    held: int
    waiters: int
    #: How long the first waiter has waited, in seconds.
    longest_wait: float


def lock_info(reply: Any) -> LockInfo:
    """A reply of ``LOCK.INFO``."""
    found = _fields(reply)
    if not found:
        return LockInfo()
    holders = tuple(map(_holder, found.get(b"holders") or ()))
    mode = bytes(found.get(b"mode") or b"").decode()
    return LockInfo(mode, holders, found.get(b"waiters") or 0, _seconds(found.get(b"longest-wait-ms")) or 0.0)


def _holder(reply: Any) -> Holder:
    found = _fields(reply)
    owner, note, token = found.get(b"owner") or b"", found.get(b"note"), found.get(b"token")
    return Holder(
        owner, note, token, found.get(b"holds") or 0, _seconds(found.get(b"pttl")), _seconds(found.get(b"held-ms"))
    )


def semaphore_info(reply: Any) -> Optional[SemaphoreInfo]:
    """A reply of ``SEM.INFO``; None if it is none."""
    found = _fields(reply)
    numbers: list[Any] = [found.get(name) for name in (b"permits", b"free", b"held", b"waiters")]
    longest = _seconds(found.get(b"longest-wait-ms"))
    if longest is None or not all(isinstance(number, int) for number in numbers):
        return None
    permits, free, held, waiters = numbers
    return SemaphoreInfo(permits, free, held, waiters, longest)


def _fields(reply: Any) -> dict[Any, Any]:
    """A map, as RESP2 or RESP3 has it."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else {}


def _seconds(millis: Any) -> Optional[float]:
    return millis / 1000 if isinstance(millis, int) and millis >= 0 else None
