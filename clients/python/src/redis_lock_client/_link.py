"""A connection of its own, with the options of the program's client and beside its pool: for the messages that end
waits, or for a session. Its two kinds, for threads and for asyncio, read it all the time, so that its end is noticed at
once."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from typing import Any, Callable, Optional

from ._hold import now
from ._terms import Command
from .errors import Error, NoAnswer

Done = Callable[[Any], None]

#: How long a subscription is silent before it is asked for a sign.
_SILENT = 5.0
_MESSAGES = frozenset({b"message", b"smessage", b"unsubscribe", b"sunsubscribe"})


class Link:
    """Sends commands, and passes their replies on in order. What is received is handled under the guard of the hub."""

    def __init__(self, server: str, guard: Any) -> None:
        self.server = server
        self.is_open = True
        #: The channels to which it is subscribed.
        self.channels: set[bytes] = set()
        self.on_message: Optional[Done] = None
        self.on_end: Optional[Callable[[], None]] = None
        self._guard = guard
        self._asked: deque[tuple[float, Done]] = deque()
        self._heard = now()

    def post(self, words: Command, done: Done) -> None:
        """Sends a command, and does not wait; the function gets the reply, or an error. What a signal handler
        has raised is raised."""
        raise NotImplementedError

    def post_in_background(self, words: Command, done: Done) -> None:
        """The same where nothing may be raised."""
        with contextlib.suppress(Exception):
            self.post(words, done)

    def close(self) -> None:
        """Closes the connection. Nothing is reported."""
        self.on_end = None
        self.end(NoAnswer(self.server, "the connection was closed"))

    def end(self, error: Error) -> None:
        """The connection has ended, or is given up."""
        with self._guard:
            if not self.is_open:
                return
            self.is_open = False
            asked, self._asked = self._asked, deque()
            on_end, self.on_end = self.on_end, None
        self.disconnect()
        with self._guard:
            for _, done in asked:
                done(error)
            if on_end is not None:
                on_end()

    def disconnect(self) -> None:
        """Closes the socket."""
        raise NotImplementedError

    def forget(self) -> None:
        """In a forked child: closes its copy of the socket, and sends nothing."""
        self.disconnect()

    def received(self, reply: Any) -> None:
        """A reply, an error of the server, or a message."""
        self._heard = now()
        with self._guard:
            if self.on_message is not None and isinstance(reply, list) and reply and _bytes(reply[0]) in _MESSAGES:
                self.on_message([_bytes(one) for one in reply])
            elif self._asked:
                self._asked.popleft()[1](reply)

    def probe(self, moment: float, patience: float) -> None:
        """Gives up a connection that does not answer, and asks a silent one for a sign."""
        if self._asked:
            if moment - self._asked[0][0] > patience:
                self.end(NoAnswer(self.server))
        elif moment - self._heard > min(_SILENT, patience):
            self.post_in_background(("PING",), lambda _: None)


def read_options(connection: Any) -> dict[str, Any]:
    """How a connection is read. Not all of redis-py 5 know the messages of RESP3."""
    options = {"disable_decoding": True, "disconnect_on_error": False, "push_request": True}
    known = inspect.signature(connection.read_response).parameters
    return {name: value for name, value in options.items() if name in known}


def _bytes(word: Any) -> Any:
    return word.encode() if isinstance(word, str) else word
