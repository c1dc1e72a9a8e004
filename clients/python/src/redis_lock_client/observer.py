"""What a program hears of its acquisitions and holds, for metrics and traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .outcome import LostReason


@dataclass(frozen=True, eq=False)
class Observed:
    """What is acquired. All events of one acquisition and of its hold have the same object."""

    #: The key as text, of several keys with commas between them.
    name: str
    #: ``"exclusive"``, ``"read"``, ``"write"``, ``"semaphore"`` or ``"latch"``.
    kind: str


class Observer:
    """The base class of observers (:func:`observe`).

    ``asked``, ``answered`` and ``released`` are called by the thread or task that acquires or releases, so that a trace
    knows where they belong; what happens in the background is told in a thread of its own (in asyncio, by the event
    loop). What a method raises is a warning in the log ``redis_lock_client``.
    """

    def asked(self, lock: Observed) -> None:
        """An acquisition begins."""

    def answered(self, lock: Observed, granted: bool, waited: float, error: Optional[BaseException]) -> None:
        """An acquisition has ended, each one once.

        :param granted: whether it holds what it asked for.
        :param waited: since it began, in seconds.
        :param error: what it raises; also a cancellation.
        """

    def released(self, lock: Observed, held: float) -> None:
        """A hold was released or left, with or without an answer, this many seconds after its grant. (A lost one is
        not.)"""

    def lost(self, lock: Observed, reason: LostReason) -> None:
        """A hold was lost."""

    def late(self, lock: Observed, by: float) -> None:
        """A renewal was not confirmed a third of the lease after it was due, for this many seconds since then. It is
        told once, until one is confirmed."""
