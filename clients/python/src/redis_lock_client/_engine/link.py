"""A connection on which requests are pipelined: replies come in the order of the requests.

redis-py opens the connection and logs in (TLS, credentials, database, client name); then this protocol takes the
transport over. redis-py's own reading is made for one request at a time: a cancelled reader would leave the next one
with a reply that is not its own.

A request that is not answered within its patience closes the link, since nothing behind it would be answered either. A
request that is given up earlier (the end of a wait, a cancelled task) leaves its place, and its reply is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import Any, Callable, Optional, cast

from ..errors import ConnectionFailed, Error, NoAnswer
from .resp import Parser, ProtocolError, Push

#: A request of a subscribed connection is answered by a message, so its link hands over every item.
OnItem = Callable[[Any], None]


class Link(asyncio.Protocol):
    """An open connection to the node ``name``."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, on_item: Optional[OnItem] = None) -> None:
        self.name = name
        self.is_open = False
        #: Called once when the connection has ended.
        self.on_close: Optional[Callable[[], None]] = None
        self._loop = loop
        self._on_item = on_item
        self._parser = Parser()
        self._pending: deque[Optional[asyncio.Future[Any]]] = deque()
        self._transport: Optional[asyncio.Transport] = None
        self._writer: Optional[asyncio.StreamWriter] = None

    def adopt(self, writer: asyncio.StreamWriter, unread: bytes, patience: float) -> None:
        """Takes over the transport of a connection that has logged in."""
        transport = cast(asyncio.Transport, writer.transport)
        # The writer of Python 3.13 closes its transport when it is collected.
        self._writer = writer
        self._transport = transport
        self.is_open = True
        limit_unacknowledged(transport, patience)
        transport.set_protocol(self)
        if transport.is_closing():
            self.close(ConnectionFailed(self.name, "the connection has ended"))
        elif unread:
            self.data_received(unread)

    async def call(self, data: bytes, patience: float, limit: Optional[float] = None, replies: int = 1) -> Any:
        """Sends a request and returns its reply, the last of ``replies``.

        :param patience: seconds after which the link is closed.
        :param limit: seconds after which the request is given up, if they are fewer.
        """
        future = self.send(data, replies)
        if limit is not None and limit < patience:
            timer = self._loop.call_later(limit, self._give_up, future, patience - limit)
        else:
            timer = self._loop.call_later(patience, self._close_late, future)
        try:
            return await future
        finally:
            timer.cancel()

    def send(self, data: bytes, replies: int = 1) -> asyncio.Future[Any]:
        """Sends a request without a time limit; the future has its reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._can_write() or self._transport is None:
            future.set_exception(ConnectionFailed(self.name, "the connection has ended"))
            return future
        self._pending.extend([None] * (replies - 1))
        self._pending.append(future)
        self._transport.write(data)
        return future

    def write(self, data: bytes) -> None:
        """Sends a request of a subscribed connection, whose answer is an item."""
        if self._can_write() and self._transport is not None:
            self._transport.write(data)

    def _can_write(self) -> bool:
        """Whether the connection is open. A transport that has failed calls :meth:`connection_lost` a turn later, and
        logs each request that it gets until then."""
        if self.is_open and self._transport is not None and self._transport.is_closing():
            self.close(ConnectionFailed(self.name, "the connection failed"))
        return self.is_open

    def close(self, error: Optional[Error] = None) -> None:
        """Ends the connection at once. Open requests fail with this error."""
        if not self.is_open:
            return
        self.is_open = False
        if self._transport is not None:
            cut_off(self._transport)
        error = error or ConnectionFailed(self.name, "the connection was closed")
        pending, self._pending = self._pending, deque()
        for future in pending:
            if future is not None and not future.done():
                future.set_exception(error)
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    def forget_socket(self) -> None:
        """Closes the descriptor without the event loop, which is the parent's."""
        transport, self._transport = self._transport, None
        self.is_open = False
        peer = None if transport is None else transport.get_extra_info("socket")
        if peer is None or peer.fileno() < 0:
            # Closed, and not collected yet.
            return
        raw = getattr(peer, "_sock", None)
        # uvloop has no socket object.
        descriptor = peer.fileno() if raw is None else raw.detach()
        with contextlib.suppress(OSError):
            os.close(descriptor)

    def data_received(self, data: bytes) -> None:
        """Hands the replies to their requests."""
        try:
            items = self._parser.feed(data)
        except ProtocolError:
            self.close(ConnectionFailed(self.name, "a reply that is none of a server's"))
            return
        for item in items:
            if self._on_item is not None:
                self._on_item(item)
            elif isinstance(item, Push):
                continue
            elif not self._pending:
                self.close(ConnectionFailed(self.name, "a reply without a request"))
                return
            else:
                future = self._pending.popleft()
                if future is not None and not future.done():
                    future.set_result(item)

    def eof_received(self) -> bool:
        """The server has closed the connection."""
        self.close(ConnectionFailed(self.name, "the server has closed the connection"))
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """The connection has ended."""
        error = ConnectionFailed(self.name, "the connection failed")
        error.__cause__ = exc
        self.close(error)
        self._writer = None

    def _give_up(self, future: asyncio.Future[Any], rest: float) -> None:
        if not future.done():
            future.set_exception(NoAnswer(self.name))
            if self.is_open:
                self._loop.call_later(rest, self._close_hung, future)

    def _close_hung(self, future: asyncio.Future[Any]) -> None:
        if future in self._pending:
            self.close(NoAnswer(self.name))

    def _close_late(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            self.close(NoAnswer(self.name))


def cut_off(transport: asyncio.WriteTransport) -> None:
    """Ends a connection at once, also while a forked process has a copy of its socket: closing the one descriptor would
    not tell the server."""
    peer = transport.get_extra_info("socket")
    if peer is not None and peer.fileno() >= 0:
        # A copy, because the socket object of uvloop has no `shutdown`.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(peer.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    transport.abort()


def limit_unacknowledged(transport: asyncio.BaseTransport, patience: float) -> None:
    """After this time the kernel drops data that the peer has not acknowledged. So there is a moment from which an
    abandoned request can no longer be served."""
    peer = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if peer is not None and option is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
        peer.setsockopt(socket.IPPROTO_TCP, option, max(1, int(patience * 1000)))
