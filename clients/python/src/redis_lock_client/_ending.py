"""The end of a hold or of an acquisition, sent until the server has answered."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from ._hold import FOREIGN, now
from ._link import Link
from ._terms import Command
from .errors import Error, NoAnswer, Refused
from .outcome import Released

if TYPE_CHECKING:
    from ._hub import Hub

#: Between two attempts to reach a server, each pause is twice the last one.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5


def jittered(pause: float) -> float:
    """A pause between two attempts to reach a server, in seconds."""
    return pause * (1 + random.random()) / 2


class Job(NamedTuple):
    """Commands of one hold, each with its key behind the verb, and what gets their replies (numbers or errors)."""

    commands: list[Command]
    done: Callable[[list[Any]], None]


@dataclass(eq=False, repr=False)
class Ending:
    """A release, or the end of an acquisition that was given up: repeated until it is answered or there is nothing left
    to release."""

    _hub: Hub
    _commands: list[Command]
    #: Until and from when it is sent.
    _over: float
    _at: float = 0.0
    _link: Optional[Link] = None
    #: Whether it is the release of a hold, and not of what may have been granted.
    _is_hold: bool = False
    #: What the server said, or why that is not known.
    result: Any = None
    _is_sent: bool = False
    _is_held: bool = True
    _pause: float = FIRST_PAUSE

    def __post_init__(self) -> None:
        self.event = self._hub.new_event()
        self._error: Error = NoAnswer(self._hub.name)
        self._failed: list[Command] = []

    @property
    def due(self) -> float:
        """When the timer has something to do with it."""
        return float("inf") if self._is_sent else self._at

    def job(self, moment: float) -> Optional[Job]:
        """What is to be sent now."""
        if self._is_sent or self._at > moment:
            return None
        if self._over <= moment:
            self.fail(self._error)
            return None
        self._is_sent = True
        if self._link is not None:
            self._link.close()
        return Job(self._commands, self._answered)

    def again(self) -> Optional[Job]:
        """The same, also if the answer of an attempt is missing: the event loop ends."""
        self._is_sent, self._at = False, min(self._at, now())
        return self.job(now())

    def _answered(self, replies: list[Any]) -> None:
        self._is_sent = False
        rest: list[Command] = []
        for command, reply in zip(self._commands, replies):
            if not isinstance(reply, Error):
                # Nothing held may mean that an earlier request was served.
                self._is_held = self._is_held and reply is not None
            elif isinstance(reply, Refused) and reply.code in FOREIGN:
                self._is_held = False
            else:
                self._error = reply
                (rest if reply.is_passing else self._failed).append(command)
        self._commands = rest
        if rest:
            self._at = now() + jittered(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._hub.plan(self)
        elif self._failed:
            self.fail(self._error)
        else:
            self._finish(Released.YES if self._is_held else Released.NOT_HELD)
            self._hub.counts.releases += self._is_hold

    def fail(self, error: Error) -> None:
        """It is given up: the server ends the hold with its lease."""
        self._hub.failed += [(bytes(command[1]), error) for command in self._failed + self._commands]
        self._hub.counts.releases_failed += 1
        self._finish(error)

    def _finish(self, result: Any) -> None:
        self.result = result
        self._hub.endings.discard(self)
        self.event.set()
