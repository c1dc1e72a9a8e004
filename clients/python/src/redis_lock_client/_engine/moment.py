"""Clocks and pauses.

The monotonic clock stops while the machine is suspended, but the server's lease does not. The wall clock continues, but
may be set back. The larger of the two elapsed times is safe in both cases.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Optional

#: Deadlines and timers, in seconds.
now = time.monotonic

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class Moment:
    """A moment by both clocks."""

    __slots__ = ("steady", "wall")

    def __init__(self) -> None:
        self.steady = time.monotonic()
        self.wall = time.time()

    def elapsed(self) -> float:
        """The elapsed time, by the clock that shows more."""
        return max(time.monotonic() - self.steady, time.time() - self.wall)


class Pause:
    """Growing pauses between attempts to reach a server."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = FIRST_PAUSE

    async def sleep(self, most: Optional[float] = None) -> None:
        """Sleeps for the next pause, at most ``most`` seconds."""
        span = self.next if most is None else min(self.next, most)
        self.next = min(self.next * 2, LONGEST_PAUSE)
        await asyncio.sleep(span)


def left(end: Optional[float]) -> float:
    """The time left until this end; without an end, more than any wait."""
    return float("inf") if end is None else max(0.0, end - now())


def part_of(span: float) -> float:
    """A random part of this span: many waits may have started at the same moment."""
    return random.random() * span


def latest(*moments: Optional[float]) -> Optional[float]:
    """The latest of the moments that are there."""
    return max((moment for moment in moments if moment is not None), default=None)
