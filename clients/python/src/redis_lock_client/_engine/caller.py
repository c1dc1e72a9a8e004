"""Requests about one key, sent one after another to the node that serves the key at the moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Optional

from ..errors import ConnectionFailed, Error, NoAnswer, Refused, bad_reply, of_reply
from .bounds import within
from .commands import Command
from .dial import Endpoint
from .link import Link
from .moment import now
from .resp import ErrorReply, pack
from .router import Shared
from .slot import slot_of

if TYPE_CHECKING:
    from .engine import Engine

#: Upper bound of redirections of one request.
_REDIRECTIONS = 8
_ASKING = pack(b"ASKING")


class Caller:
    """Sends requests about a key."""

    __slots__ = ("_link", "_node", "_router", "_shared", "_slot", "_waits", "answered_by", "engine", "failures", "sent")

    def __init__(self, engine: Engine, key: bytes, waits: bool = False) -> None:
        self.engine = engine
        self._router = engine.router
        self._slot = slot_of(key) if engine.router.source.is_cluster else None
        #: Whether the caller has a connection of its own, because its requests wait; the others share one.
        self._waits = waits
        self._link: Optional[Link] = None
        self._node: Optional[Endpoint] = None
        self._shared: Optional[Shared] = None
        #: The failures of a waiting caller since its last reply.
        self.failures = 0
        #: Whether the last request was sent without a reply, and so may have been served.
        self.sent = False
        #: Of a shared caller: the node that replied last, and its connection.
        self.answered_by: Optional[tuple[Endpoint, Shared]] = None

    def was_unanswered(self) -> bool:
        """Whether the last request was sent without a reply, also when its task was cancelled. Reading it clears it."""
        sent, self.sent = self.sent, False
        return sent

    def keep_open(self) -> None:
        """Returns the connection of a waiting caller to the pool, if no request is pending on it."""
        link, self._link = self._link, None
        if link is None or self._node is None:
            return
        if self.sent:
            link.close()
        else:
            self._router.put(self._node, link)

    def detach(self) -> Link:
        """The connection of the last reply, which the caller no longer uses."""
        link, self._link = self._link, None
        if link is None:
            raise ConnectionFailed(self._router.source.name, "the connection has ended")
        return link

    def close(self) -> None:
        """Closes the connection of a waiting caller, and the server removes the waiter."""
        link, self._link = self._link, None
        if self._waits and link is not None:
            link.close()

    async def call(self, command: Command, patience: float, limit: Optional[float] = None) -> Any:
        """Sends a request once to the node that serves the key and returns the reply.

        :param patience: bounds the attempt at each node of a chain of redirections.
        :param limit: a moment at which the request is given up, while its connection stays.
        :raises ConnectionFailed: after which the request may have been served, see :meth:`was_unanswered`.
        """
        self.sent = False
        self.answered_by = None
        data = pack(*command)
        ask: Optional[Endpoint] = None
        for _ in range(_REDIRECTIONS):
            end = now() + patience
            if limit is not None:
                end = min(end, limit)
            is_asking = ask is not None
            link = await (self._open(ask, end) if ask is not None else self._find(end))
            ask = None
            self.sent = True
            reply = await self._send(link, data, is_asking, patience, limit)
            self.sent = False
            if not isinstance(reply, ErrorReply):
                self.failures = 0
                self._note_node()
                return reply
            code, _, rest = reply.text.partition(" ")
            if code not in ("MOVED", "ASK") or self._slot is None:
                raise self._refused(link, of_reply(link.name, reply.text))
            slot, node = self._redirection(link, rest)
            if code == "ASK":
                ask = node
            else:
                self._router.learn(slot, node)
                self.failures = 0
            self._leave(link)
        raise ConnectionFailed(self._router.source.name, "sent on from node to node without end")

    async def _send(self, link: Link, data: bytes, is_asking: bool, patience: float, limit: Optional[float]) -> Any:
        rest = None if limit is None else max(0.0, limit - now())
        try:
            if is_asking:
                return await link.call(_ASKING + data, patience, rest, replies=2)
            return await link.call(data, patience, rest)
        except ConnectionFailed:
            if not link.is_open:
                self._give_up()
            raise

    def _leave(self, link: Link) -> None:
        """Goes on to another node."""
        if self._waits and self._node is not None:
            self._router.put(self._node, link)
        self._link = None

    def _note_node(self) -> None:
        if not self._waits and self._node is not None and self._shared is not None:
            self.answered_by = (self._node, self._shared)

    async def _find(self, end: float) -> Link:
        """A connection to the node that serves the key, as far as known. An unreachable node is an error only when no
        other seed is left to ask."""
        if self._link is not None and self._link.is_open:
            return self._link
        if not self._waits:
            node = self._router.known_node(self._slot)
            if node is not None:
                shared = self._router.shared(node)
                if shared.link is not None and shared.link.is_open:
                    self._node, self._shared = node, shared
                    return shared.link
        others = self._router.seeds if self._router.seeds > 1 else 0
        while True:
            node = await self._locate(end)
            soon = (end - now()) / 2 if others else end - now()
            try:
                return await self._open(node, now() + soon)
            except Error as error:
                if not error.is_passing or others <= 0 or now() >= end:
                    raise
                others -= 1

    async def _locate(self, end: float) -> Endpoint:
        known = None if self.failures else self._router.known_node(self._slot)
        if known is not None:
            return known
        try:
            return await within(end - now(), self._router.node_of(self._slot, self.failures))
        except asyncio.TimeoutError as error:
            raise NoAnswer(self._router.source.name) from error

    async def _open(self, node: Endpoint, end: float) -> Link:
        try:
            if not self._waits:
                shared = self._router.shared(node)
                self._node, self._shared = node, shared
                try:
                    return await self._router.open_shared(node, shared, end - now())
                except NoAnswer:
                    self._router.reroute(node)
                    raise
            self._node = node
            self._link = await within(end - now(), self._router.take(node), Link.close)
            return self._link
        except asyncio.TimeoutError as error:
            self._count_failure()
            raise NoAnswer(node.name) from error
        except Error:
            self._count_failure()
            raise

    def _redirection(self, link: Link, rest: str) -> tuple[int, Endpoint]:
        words = rest.split(" ")
        if self._node is None or len(words) < 2:
            raise bad_reply(link.name)
        try:
            return int(words[0]), self._router.redirected(self._node, words[1])
        except ValueError as error:
            raise bad_reply(link.name) from error

    def _refused(self, link: Link, error: Error) -> Error:
        """Handles a refusal. If another node may serve the key, the next request asks for that node."""
        self._note_node()
        if isinstance(error, Refused) and error.is_elsewhere and self._node is not None:
            if self._waits:
                self._link = None
                link.close()
                self._router.close_pooled(self._node)
                self._router.reroute(self._node)
            elif self._shared is not None:
                self._router.forget_shared(self._node, self._shared)
        return error

    def _give_up(self) -> None:
        """Drops a connection that has failed, and the idle ones of the same node."""
        self._link = None
        if self._waits and self._node is not None:
            self._router.close_pooled(self._node)
        elif self._node is not None and self._shared is not None:
            self._router.forget_shared(self._node, self._shared)
        self._count_failure()

    def _count_failure(self) -> None:
        # The failure of a shared connection has already changed the route.
        if self._waits:
            self.failures += 1
