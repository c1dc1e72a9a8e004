"""What the steps of this package ask of a driver. The steps are generators without I/O; each yields one of these, and
gets the result, or an :class:`Error`. There are two drivers, for threads and for asyncio."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Protocol

from ._terms import Command
from .errors import Unheard


class Verb(str):
    """The first word of a command, which counts how often the command was made ready to be sent.

    redis-py may send a command again by itself. A request that was sent twice, and answered once, may still be served
    a second time, so the package has to know.
    """

    sends: int

    def __new__(cls, text: str) -> Verb:
        verb = super().__new__(cls, text)
        verb.sends = 0
        return verb

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        self.sends += 1
        return str.encode(self, *args, **kwargs)


class OnceVerb(Verb):
    """The same of a command that must not be sent twice."""

    server: str

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        if self.sends:
            raise Unheard(self.server, "the connection failed")
        return super().encode(*args, **kwargs)


class Call:
    """Sends a command through the client; the result is the reply."""

    __slots__ = ("key", "verb", "words")

    def __init__(self, words: Command, key: bytes, once: Optional[str] = None) -> None:
        self.verb: Verb = Verb(words[0]) if once is None else OnceVerb(words[0])
        if isinstance(self.verb, OnceVerb):
            self.verb.server = once or ""
        self.words = (self.verb, *words[1:])
        self.key = key


class Batch(NamedTuple):
    """Sends commands of one node together; the result has a reply or an error for each."""

    calls: list[Call]


class Event(Protocol):
    """What wakes a step."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...


class Await(NamedTuple):
    """Waits until the event is set, at most this many seconds."""

    event: Event
    seconds: Optional[float]


class Pause(NamedTuple):
    """Waits."""

    seconds: float


class Place(NamedTuple):
    """The result is the name of the node that serves a key, None outside a cluster."""

    key: bytes


class Refresh(NamedTuple):
    """Reads the slots of a cluster again."""


class Open(NamedTuple):
    """The result is a connection of its own (a ``Link``) to the node of a key."""

    key: bytes


class Ask(NamedTuple):
    """Sends a command on such a connection; the result is the reply."""

    link: Any
    words: Command
