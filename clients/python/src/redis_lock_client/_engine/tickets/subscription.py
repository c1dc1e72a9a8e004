"""The subscribed connections of a server's lines: one for each node, with a task that probes it.

RESP2 is enough: such a connection sends nothing but subscriptions, and every item that it receives names its kind.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any, Optional

from ...errors import ConnectionFailed, Error, NoAnswer, Refused, of_reply
from ..bounds import within
from ..dial import Endpoint
from ..link import Link
from ..moment import now
from ..resp import ErrorReply, pack
from .ticket import Close, Line, Probe, read_message

if TYPE_CHECKING:
    from .desk import Desk

#: The longest time between two probes of a connection.
_LONGEST_BEAT = 5.0


class Refusal(enum.Enum):
    """Why a channel is not subscribed."""

    #: The node was reached; later, perhaps.
    PASSING = 1
    #: No connection can be opened, as a parked wait could not either.
    UNREACHED = 2
    #: The user may not subscribe.
    FINAL = 3


class Subscribed:
    """A subscribed connection and its number, which no other connection of the server has."""

    def __init__(self, desk: Desk, number: int) -> None:
        self.number = number
        self.link: Optional[Link] = None
        self._desk = desk
        #: The requests without an answer, in their order: the channel, and the future of the confirmation.
        self._asked: list[tuple[bytes, Optional[asyncio.Future[None]]]] = []

    async def confirm(self, channel: bytes, patience: float) -> None:
        """Subscribes and waits for the confirmation.

        :raises Error: when the server refuses, or does not answer.
        """
        if self.link is None or not self.link.is_open:
            raise ConnectionFailed("", "the connection has ended")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((channel, future))
        self.link.write(pack(b"SSUBSCRIBE" if self._desk.is_sharded else b"SUBSCRIBE", channel))
        try:
            done, _ = await asyncio.wait({future}, timeout=patience)
            if not done:
                # The entry stays, because the answer may still come; the caller closes the connection.
                raise NoAnswer(self.link.name)
            future.result()
        finally:
            # No error is for a future that nothing waits for: asyncio would log it.
            future.cancel()

    def unsubscribe(self, channel: bytes) -> None:
        """Ends the subscription of an idle channel. The answer is not awaited."""
        if self.link is not None:
            self._asked.append((channel, None))
            self.link.write(pack(b"SUNSUBSCRIBE" if self._desk.is_sharded else b"UNSUBSCRIBE", channel))

    def received(self, item: Any) -> None:
        """Handles an item that the connection has received."""
        if isinstance(item, ErrorReply):
            if self._asked:
                _, future = self._asked.pop(0)
                name = self.link.name if self.link is not None else ""
                if future is not None and not future.done():
                    future.set_exception(of_reply(name, item.text))
            return
        if not isinstance(item, list) or len(item) < 3:
            return
        kind, channel, payload = item[0], item[1], item[2]
        if kind in (b"message", b"smessage"):
            found = read_message(payload) if isinstance(payload, bytes) else None
            if found is not None:
                self._desk.message(*found)
        elif kind in (b"subscribe", b"ssubscribe"):
            self._answered(channel, True)
        elif kind in (b"unsubscribe", b"sunsubscribe"):
            self._answered(channel, False)
            for line in self._desk.table.channel_ended(self.number, channel):
                self._desk.work_on(line)

    def _answered(self, channel: bytes, is_subscribed: bool) -> None:
        """Removes the first request that this item answers. (The server ends subscriptions unasked, too.)"""
        for place, (asked, future) in enumerate(self._asked):
            if asked == channel and (future is not None) == is_subscribed:
                del self._asked[place]
                if future is not None and not future.done():
                    future.set_result(None)
                return

    def ended(self) -> None:
        """The connection has ended."""
        name = self.link.name if self.link is not None else ""
        for _, future in self._asked:
            if future is not None and not future.done():
                future.set_exception(ConnectionFailed(name, "the connection has ended"))
        self._asked.clear()


class Subscriptions:
    """The subscribed connections, by node."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._nodes: dict[Endpoint, Subscribed] = {}
        self._opening: dict[Endpoint, asyncio.Task[Subscribed]] = {}
        self._last_number = 0

    async def subscribe(self, line: Line, channel: bytes, node: Endpoint) -> Optional[Refusal]:
        """Subscribes to the channel of a line at this node. None: it is subscribed."""
        try:
            subscribed = await self._connection_to(node)
        except Error as error:
            # A login that is refused now was accepted a moment ago, so it may be accepted again.
            return Refusal.FINAL if isinstance(error, Refused) and not error.is_passing else Refusal.UNREACHED
        try:
            await subscribed.confirm(channel, self._desk.engine.patience / 2)
        except Refused as error:
            # In a cluster the slot may be moving to another node.
            return Refusal.FINAL if error.code in ("NOPERM", "ERR") else Refusal.PASSING
        except ConnectionFailed:
            self._close(node, subscribed)
            return Refusal.PASSING
        except Error:
            return Refusal.FINAL
        if self._nodes.get(node) is not subscribed:
            return Refusal.UNREACHED
        self._desk.table.subscribed(line, node.name, subscribed.number)
        return None

    async def _connection_to(self, node: Endpoint) -> Subscribed:
        """The subscribed connection to this node; the first caller opens it."""
        subscribed = self._nodes.get(node)
        if subscribed is not None:
            return subscribed
        opening = self._opening.get(node)
        if opening is None:
            opening = self._opening[node] = self._desk.engine.spawn(self._open(node))
        await asyncio.wait({opening})
        if opening.cancelled():
            raise ConnectionFailed(node.name, "the connection was closed")
        return opening.result()

    async def _open(self, node: Endpoint) -> Subscribed:
        try:
            self._last_number += 1
            subscribed = Subscribed(self._desk, self._last_number)
            engine = self._desk.engine
            opening = engine.dialer.open(node, engine.router.source.login, subscribed.received)
            try:
                subscribed.link = await within(engine.patience, opening, Link.close)
            except asyncio.TimeoutError as error:
                raise NoAnswer(node.name) from error
            subscribed.link.on_close = lambda: self._ended(node, subscribed)
            self._nodes[node] = subscribed
            engine.spawn(self._keep(node, subscribed))
            return subscribed
        finally:
            self._opening.pop(node, None)

    async def _keep(self, node: Endpoint, subscribed: Subscribed) -> None:
        """Probes a connection while it has tickets; closes it when it does not answer, or has had no ticket for a
        while."""
        patience = self._desk.engine.patience
        # The first subscription may take that long.
        await asyncio.sleep(patience / 2)
        while True:
            await asyncio.sleep(max(0.001, min(patience / 4, _LONGEST_BEAT)))
            if self._nodes.get(node) is not subscribed:
                return
            beat = self._desk.table.beat(subscribed.number, now())
            if isinstance(beat, Close):
                self._close(node, subscribed)
                return
            if isinstance(beat, Probe):
                for channel in beat.unused:
                    subscribed.unsubscribe(channel)
                try:
                    await subscribed.confirm(beat.channel, patience / 2)
                except Error as error:
                    # The channel may have left the node, with its slot.
                    if not (isinstance(error, Refused) and error.code == "MOVED"):
                        self._close(node, subscribed)
                        return

    def _close(self, node: Endpoint, subscribed: Subscribed) -> None:
        if subscribed.link is not None and subscribed.link.is_open:
            subscribed.link.close()
        else:
            self._ended(node, subscribed)

    def _ended(self, node: Endpoint, subscribed: Subscribed) -> None:
        """A connection has ended; its lines are due."""
        if self._nodes.get(node) is subscribed:
            del self._nodes[node]
        subscribed.ended()
        for line in self._desk.table.closed(subscribed.number):
            self._desk.work_on(line)

    def close(self) -> None:
        """Closes all connections."""
        for node, subscribed in list(self._nodes.items()):
            self._close(node, subscribed)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._nodes)
