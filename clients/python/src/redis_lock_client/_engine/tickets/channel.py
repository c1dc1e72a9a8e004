"""The channel of a line: its tickets, its subscription, and its pauses after failures."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple, Optional

from .ticket import Answer, Busy, Later, NoSubscriber, Unsupported

#: The first and the longest pause after a failure.
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5


class Live(NamedTuple):
    """A subscribed channel: the node, and the number of the connection."""

    node: str
    number: int


class Due:
    """The tickets whose requests are to be sent, the lowest number first."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    def add(self, number: int) -> None:
        if number not in self._members:
            self._members.add(number)
            heapq.heappush(self._heap, number)

    def discard(self, number: int) -> None:
        self._members.discard(number)

    def first(self) -> Optional[int]:
        while self._heap and self._heap[0] not in self._members:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def drain(self) -> list[int]:
        """Removes all."""
        members = sorted(self._members)
        self._heap.clear()
        self._members.clear()
        return members


class Channel:
    """What the tickets of a line have in common."""

    def __init__(self, name: bytes, now: float) -> None:
        self.name = name
        #: In the order in which they were filed.
        self.tickets: dict[int, None] = {}
        self.due = Due()
        self.live: Optional[Live] = None
        #: Raised with each subscription and each end of one.
        self.epoch = 0
        #: Attempts to subscribe since a request was last answered while subscribed.
        self.subscriptions = 0
        self.pause = _FIRST_PAUSE
        self.not_before: Optional[float] = None
        #: After a failure requests go one by one, until one is answered.
        self.is_probing = False
        #: ``lock.drain`` is on: ``LOCKBUSY`` passes.
        self.is_draining = False
        self.has_worker = False
        #: The waits park while this holds: the evidence, and the latest end.
        self.parking: Optional[tuple[Any, Optional[float]]] = None
        self.used = now

    @property
    def is_alone(self) -> bool:
        """Whether it is unknown that requests are answered ``QUEUED``."""
        return self.live is None or self.is_probing

    def is_on(self, number: int) -> bool:
        """Whether the channel is subscribed on the connection with this number."""
        return self.live is not None and self.live.number == number

    def answered(self, answer: Answer, epoch: int, now: float) -> None:
        """Counts the reply to a request that was sent in this epoch."""
        if isinstance(answer, Later) or (isinstance(answer, Busy) and self.is_draining):
            self.fail(now)
        elif isinstance(answer, (NoSubscriber, Unsupported)):
            self.is_probing = False
        else:
            self.is_probing = False
            self.is_draining = False
            self.pause = _FIRST_PAUSE
            if self.epoch == epoch and self.live is not None:
                self.subscriptions = 0

    def fail(self, now: float) -> None:
        """Starts a pause. Concurrent failures count as one."""
        self.is_probing = True
        if self.not_before is not None and now < self.not_before:
            return
        self.not_before = now + self.pause
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)
