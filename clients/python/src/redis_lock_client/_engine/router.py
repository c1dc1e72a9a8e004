"""The nodes of a server and the connections to them.

Requests that are answered at once share one connection to each node, also those of tickets; a parked request gets a
connection of its own, because it would block all later requests on a shared one. The node that serves a key is learnt
from redirections, the primary from the sentinels; both are looked up again when that node cannot be reached.

A wait that cannot connect proves nothing about the shared connections: the server (``maxclients``) or this process may
only lack room for one more. So a failed wait tries other nodes for itself (``failures``), and a shared connection is
dropped only when it fails itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Callable, Optional

from ..errors import ConfigError, Error, NoAnswer, bad_reply, of_reply
from .bounds import within
from .dial import Dialer, Endpoint
from .link import Link
from .moment import now
from .resp import ErrorReply, pack
from .source import Source

#: Upper bound of learnt nodes.
_MAX_NODES = 100
#: Upper bound of idle parked connections to one node, and how long they are kept.
_MAX_POOLED = 64
MAX_IDLE = 30.0

Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]


class Shared:
    """The place of a node's shared connection, which the first request opens."""

    __slots__ = ("__weakref__", "link", "opening")

    def __init__(self) -> None:
        self.link: Optional[Link] = None
        self.opening: Optional[asyncio.Task[Link]] = None

    @property
    def is_open(self) -> bool:
        return self.link is not None and self.link.is_open


class Router:
    """The topology of a server, its shared connections and its idle ones."""

    def __init__(self, source: Source, dialer: Dialer, spawn: Spawn) -> None:
        self.source = source
        self.dialer = dialer
        self._spawn = spawn
        self._slots: dict[int, Endpoint] = {}
        self._nodes: list[Endpoint] = []
        self._primary: Optional[Endpoint] = None
        self._seed = 0
        self._shared: dict[Endpoint, Shared] = {}
        self._pooled: dict[Endpoint, list[tuple[float, Link]]] = {}

    @property
    def seeds(self) -> int:
        """The number of nodes that may be asked for the node of a key."""
        return len(self.source.seeds) + len(self._nodes)

    async def node_of(self, slot: Optional[int], failures: int) -> Endpoint:
        """The node that serves a slot as far as known, or the primary."""
        if self.source.sentinels is None:
            return self._node_or_seed(slot, failures)
        if self._primary is None or failures:
            self._primary = await self._ask_sentinels(self._seed + failures)
        return self._primary

    def known_node(self, slot: Optional[int]) -> Optional[Endpoint]:
        """The same, where nothing has to be asked."""
        return self._primary if self.source.sentinels is not None else self._node_or_seed(slot, 0)

    def _node_or_seed(self, slot: Optional[int], failures: int) -> Endpoint:
        if slot is not None and not failures and slot in self._slots:
            return self._slots[slot]
        seeds = self.source.seeds
        place = (self._seed + failures) % max(1, len(seeds) + len(self._nodes))
        return seeds[place] if place < len(seeds) else self._nodes[place - len(seeds)]

    def redirected(self, by: Endpoint, address: str) -> Endpoint:
        """The node that a redirection names. A node that does not know its own host name answers with an empty one."""
        host, _, port = address.rpartition(":")
        host, number = host.strip("[]") or by.host, int(port)
        if self.source.remap is not None:
            host, number = self.source.remap((host, number))
        return Endpoint(host, number)

    def learn(self, slot: int, node: Endpoint) -> None:
        """Remembers the node of a slot."""
        if node not in self._nodes and node not in self.source.seeds and len(self._nodes) < _MAX_NODES:
            self._nodes.append(node)
        self._slots[slot] = node

    def reroute(self, node: Endpoint) -> None:
        """Forgets that this node serves anything; the next look-up asks another one."""
        seeds = self.source.seeds
        place = self._seed % max(1, self.seeds)
        seed = None
        if self.seeds:
            seed = seeds[place] if place < len(seeds) else self._nodes[place - len(seeds)]
        self._slots = {slot: other for slot, other in self._slots.items() if other != node}
        if node == self._primary:
            self._primary = None
            self._seed += 1
        elif seed == node:
            self._seed += 1

    def shared(self, node: Endpoint) -> Shared:
        """The place of the node's shared connection."""
        shared = self._shared.get(node)
        if shared is None:
            shared = self._shared[node] = Shared()
        return shared

    async def open_shared(self, node: Endpoint, shared: Shared, patience: float) -> Link:
        """The shared connection to a node; several requests wait for one opening."""
        if shared.link is not None and shared.link.is_open:
            return shared.link
        if shared.opening is None:
            shared.opening = self._spawn(self._open(node, shared))
        done, _ = await asyncio.wait({shared.opening}, timeout=max(0.0, patience))
        if not done:
            raise NoAnswer(node.name)
        if shared.opening.cancelled():
            raise NoAnswer(node.name, "the connection was closed")
        return shared.opening.result()

    async def _open(self, node: Endpoint, shared: Shared) -> Link:
        try:
            link = await self.dialer.open(node, self.source.login)
        except BaseException:
            self.forget_shared(node, shared)
            raise
        if self._shared.get(node) is not shared:
            # Given up meanwhile.
            link.close()
            raise NoAnswer(node.name)
        shared.link = link
        link.on_close = lambda: self.forget_shared(node, shared)
        return link

    def is_current(self, node: Endpoint, shared: Optional[Shared]) -> bool:
        """Whether this is the node's present connection, and open."""
        return shared is not None and self._shared.get(node) is shared and shared.is_open

    def forget_shared(self, node: Endpoint, failed: Shared) -> None:
        """Drops a shared connection that has failed; nothing if a newer one has replaced it."""
        if self._shared.get(node) is failed:
            del self._shared[node]
            self.reroute(node)
        if failed.link is not None:
            failed.link.close()

    async def take(self, node: Endpoint) -> Link:
        """A connection for a parked request: an idle one, or a new one."""
        idle = self._pooled.get(node)
        while idle:
            _, link = idle.pop()
            if link.is_open:
                return link
        return await self.dialer.open(node, self.source.login)

    def put(self, node: Endpoint, link: Link) -> None:
        """Keeps the connection of a finished wait for the next one."""
        idle = self._pooled.setdefault(node, [])
        if link.is_open and len(idle) < _MAX_POOLED:
            idle.append((now(), link))
        else:
            link.close()

    def close_pooled(self, node: Endpoint) -> None:
        """Closes the idle connections to a node, because one of them has failed."""
        for _, link in self._pooled.pop(node, []):
            link.close()

    def sweep(self) -> None:
        """Closes the connections that have been idle for too long."""
        for node, idle in list(self._pooled.items()):
            old = [link for since, link in idle if now() - since >= MAX_IDLE or not link.is_open]
            self._pooled[node] = [(since, link) for since, link in idle if link not in old]
            for link in old:
                link.close()
            if not self._pooled[node]:
                del self._pooled[node]

    def close(self) -> None:
        """Closes all connections."""
        for node in list(self._pooled):
            self.close_pooled(node)
        for shared in list(self._shared.values()):
            if shared.opening is not None:
                shared.opening.cancel()
            if shared.link is not None:
                shared.link.on_close = None
                shared.link.close()
        self._shared.clear()

    @property
    def connections(self) -> int:
        """The number of open connections, without those of parked requests."""
        shared = sum(one.is_open for one in self._shared.values())
        return shared + sum(map(len, self._pooled.values()))

    async def _ask_sentinels(self, first: int) -> Endpoint:
        """Asks the sentinels for the primary, one after another."""
        sentinels = self.source.sentinels
        if sentinels is None:
            raise ConfigError("no sentinels are named")
        count = len(sentinels.logins)
        # An unresponsive sentinel leaves time for the others.
        patience = self.dialer.patience / (count + 1)
        failure: Optional[Error] = None
        for place in range(count):
            endpoint, login = sentinels.logins[(first + place) % count]
            try:
                found = await within(patience, self._ask(endpoint, login, sentinels.primary))
            except asyncio.TimeoutError:
                failure = NoAnswer(endpoint.name)
            except Error as error:
                failure = error
            else:
                if found is not None:
                    return found
                # This sentinel may have just started; a connection error of another one is reported instead.
                failure = failure or self._unknown()
        raise failure or self._unknown()

    async def _ask(self, endpoint: Endpoint, login: Any, primary: str) -> Optional[Endpoint]:
        link = await self.dialer.open(endpoint, login)
        try:
            request = pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", primary.encode())
            reply = await link.call(request, self.dialer.patience)
        finally:
            link.close()
        if isinstance(reply, ErrorReply):
            raise of_reply(endpoint.name, reply.text)
        if reply is None:
            return None
        try:
            host, port = reply
            return Endpoint(host.decode() or endpoint.host, int(port))
        except (AttributeError, TypeError, ValueError) as error:
            raise bad_reply(endpoint.name) from error

    def _unknown(self) -> ConfigError:
        return ConfigError(f"{self.source.name}: no sentinel knows a primary of this name")
