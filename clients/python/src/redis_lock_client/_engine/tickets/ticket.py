"""A ticket, and what passes between the table and the desk."""

from __future__ import annotations

import enum
from typing import Any, Callable, NamedTuple, Optional, Union

from ...errors import Error
from ..commands import Tokens
from ..moment import Moment

#: What shares a channel: the tickets of a slot, in a cluster; else all of a server (None).
Line = Optional[int]


class Message(NamedTuple):
    """A message that ends a ticket, as the module publishes it, without its tag."""

    #: ``granted``, ``timeout`` or ``failed``.
    word: str
    code: str = ""


def read_message(payload: bytes) -> Optional[tuple[int, Message]]:
    """The number of the ticket and the outcome. None for any other text.

    The token of a grant is not read: the wait asks for it.
    """
    words = payload.split(b" ")
    length = {b"timeout": 2, b"granted": 3, b"failed": 3}.get(words[0])
    tag = words[-1]
    # The module repeats the tag that it was given: digits, without a sign.
    if length != len(words) or not tag.isdigit() or len(tag) > 20:
        return None
    code = words[1].decode("utf-8", "replace") if words[0] == b"failed" else ""
    return int(tag), Message(words[0].decode(), code)


class Granted(NamedTuple):
    """The reply to the request: the tokens, and a moment before it was sent."""

    tokens: Tokens
    sent: Moment


class Announced(NamedTuple):
    """A message says that the request was granted."""


class TimedOut(NamedTuple):
    """The time of ``BLOCK`` is over."""


class Failed(NamedTuple):
    """The request failed."""

    error: Error


class FailedBy(NamedTuple):
    """A message with this code says that the request has failed."""

    code: str


class Park(NamedTuple):
    """No tickets here, or no place for this one: wait with a connection."""


#: What a wait learns of its ticket.
Outcome = Union[Granted, Announced, TimedOut, Failed, FailedBy, Park]


class Queued(NamedTuple):
    """The server has the ticket; this node replied."""

    node: str


class NoSubscriber(NamedTuple):
    """``NOSUBSCRIBER``."""


class Busy(NamedTuple):
    """``LOCKBUSY``."""


class Later(NamedTuple):
    """No reply, or an error that passes. The request may be served until then, if it was sent."""

    unanswered_until: Optional[float]


class Unsupported(NamedTuple):
    """The server takes no tickets."""


#: What the server replied to a request.
Answer = Union[Granted, Queued, NoSubscriber, Busy, Later, Unsupported, Failed]


class Ask(NamedTuple):
    """A request to send."""

    id: int
    line: Line
    request: Any
    channel: bytes
    #: No other request of the line is sent before the reply.
    is_alone: bool
    epoch: int


class Done(NamedTuple):
    """Nothing is due."""


class PauseUntil(NamedTuple):
    """Nothing may be sent before this moment."""

    moment: float


#: What a worker of a line does next.
Step = Union[Done, PauseUntil, Ask]


class Close(NamedTuple):
    """No line has had a ticket for a while."""


class Rest(NamedTuple):
    """No ticket, for now."""


class Probe(NamedTuple):
    """Subscribe to the first channel again; the others have been idle."""

    channel: bytes
    unused: list[bytes]


#: What the keeper of a subscription does next.
Beat = Union[Close, Rest, Probe]


class State(enum.Enum):
    """``DUE``: its request is to be sent. ``ASKING``: sent, no reply yet. ``QUEUED``: the server has it. ``OVER``: its
    outcome was delivered."""

    DUE = 0
    ASKING = 1
    QUEUED = 2
    OVER = 3


class Ticket:
    """A filed ticket."""

    __slots__ = ("deliver", "early", "in_flight", "is_there", "line", "request", "state", "unanswered_until")

    def __init__(self, line: Line, request: Any, deliver: Callable[[Outcome], None]) -> None:
        self.line = line
        self.request = request
        self.deliver = deliver
        self.state = State.DUE
        #: A message that came before the reply.
        self.early: Optional[Message] = None
        #: Requests without a reply yet.
        self.in_flight = 0
        #: Whether the server may have it in a queue, or may have granted it.
        self.is_there = False
        self.unanswered_until: Optional[float] = None
