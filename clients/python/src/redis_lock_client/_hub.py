"""What the locks of one client share: the holds and their renewal, the waits, and the releases in the background.

All requests are coroutines, written once. ``_threads`` and ``asyncio._loops`` have the two ways to send a command and
to wait; in a thread they block, so that a coroutine runs to its end without a pause.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import uuid
import weakref
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any, Callable, Optional

from redis.crc import key_slot

from ._client import RAW, check_client, is_cluster, is_of_provider, name_of, translated, translating
from ._ending import Ending, Job
from ._hold import Hold, Moment, now, warn
from ._link import Link
from ._terms import Command
from .errors import Closed, Error, NoAnswer, Refused, of_redis
from .observer import Observed, Observer
from .outcome import LostReason
from .statistics import Statistics

#: How long an unused timer or subscription stays.
IDLE = 30.0
#: The response timeout of what runs in the background, if the client has no `socket_timeout`.
_PATIENCE = 5.0
#: The longest time between two ticks.
_LONGEST = 3.0
#: The most keys of which a client remembers that they were waited for.
_CONTENDED = 1_000
#: The commands of one pipeline.
PIPELINE = 500


@dataclass(eq=False)
class Ticket:
    """A wait in the server's queue."""

    number: int
    event: Any
    node: Any = None
    #: The words of its message.
    message: Optional[list[bytes]] = None


class Hub:
    """The state of the locks of one client, or of one server object; of asyncio, in one event loop."""

    is_asyncio = False
    #: What the program hears of its locks by, if it wants to.
    observer: Optional[Observer] = None
    _timer: Any = None

    def __init__(self, client: Any, counts: Statistics, is_shared: bool) -> None:
        self.counts = counts
        self.is_cluster = is_cluster(client)
        self.name = name_of(client)
        #: How long a request in the background is waited for.
        self.patience = float(dict(client.get_connection_kwargs()).get("socket_timeout") or _PATIENCE)
        self._client = weakref.ref(client)
        # A shared client is kept alive only as long as there is something to do for it.
        self._kept: Any = None if is_shared else client
        self._is_shared = is_shared
        self.is_closing = False
        self.is_closed = False
        self._is_retired = False
        #: When the timer looks again.
        self.planned = float("inf")
        self._interval = _LONGEST
        self._channels: dict[int, bytes] = {}
        self.begin_anew()

    def forget(self) -> None:
        """In a forked child: closes its copies of the connections, and begins anew."""
        for link in [*self.links.values(), *(hold.link for hold in self.all_holds() if hold.link is not None)]:
            link.forget()
        for hold in self.all_holds():
            hold.disinherit()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is held, and no owner of before is used again: in a new object, and in a forked child."""
        #: Several threads use the state under this guard. Re-entrant: a signal handler or a destructor may use a lock
        #: while its thread is in here.
        self.guard: Any = threading.RLock()
        self.id = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self.holds: set[Hold] = set()
        #: The lost holds that the program still refers to. Weak, so that one that is not released takes no memory.
        self.lost_holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        self.endings: set[Ending] = set()
        self.failed: list[tuple[bytes, Error]] = []
        self.tickets: dict[int, Ticket] = {}
        #: The acquisitions that wait in a queue.
        self.waits: set[object] = set()
        #: The keys of which the last request had to wait, so that the next one begins with a ticket.
        self.contended: set[bytes] = set()
        #: The acquisitions and releases under way.
        self.users: set[object] = set()
        #: Those of the subscriptions by node, and those that ask for replicas.
        self.links: dict[Any, Link] = {}
        #: By node: the grants whose replicas are asked for.
        self.checks: dict[Any, Any] = {}
        #: What the first subscription to each node opens for the other waits. Weak: a wait that a signal handler ended
        #: in its last lines opens nothing, and the next one must not wait for it.
        self._gates: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self._used = now()

    @property
    def client(self) -> Any:
        """The program's client.

        :raises Closed: when it was collected.
        """
        client = self._kept if self._kept is not None else self._client()
        if client is None:
            raise Closed("the client is gone")
        return client

    # What the two kinds add

    #: An event, and a wait until it is set, at most this many seconds.
    new_event: Callable[[], Any]
    wait: Callable[[Any, Optional[float]], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]
    #: Calls a method of redis-py, which in asyncio is awaited.
    of_client: Callable[..., Awaitable[Any]]
    #: Opens a connection of its own to the node of a key.
    open: Callable[[bytes], Awaitable[Link]]
    #: Begins something in the background.
    start: Callable[[Coroutine[Any, Any, None]], Any]
    #: Wakes the timer, and starts it if there is none.
    wake: Callable[[], None]
    #: Calls a function of the program, beside what goes on.
    tell: Callable[..., None]
    #: Calls a function of the hub, for any thread: in asyncio in the loop, unless that has ended.
    post: Callable[..., None]

    @property
    def is_gone(self) -> bool:
        """Whether the holds are over because the event loop has ended."""
        return False

    # Requests

    async def call(self, words: Command, key: bytes) -> Any:
        """Sends a command for a key through the client, and raises an :class:`Error` for each error of it."""
        client = self.client
        try:
            return await self.of_client(client.execute_command, *words, **RAW)
        except BaseException as error:
            if is_of_provider(error) and not self.is_cluster:
                # redis-py keeps such a connection, which has not logged in.
                closing = client.connection_pool.disconnect(inuse_connections=False)
                if self.is_asyncio:
                    await closing
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    async def execute_at_node(self, words: Command) -> Any:
        """Sends a command to the node of its key, of a cluster, and follows no redirection: redis-py would send again,
        and not tell whether the command was refused before or the connection has ended."""
        with translating(self.name):
            _, node = await self.node(words[1])
            return await self.of_client(node.execute_command, *words, **RAW)

    async def batch(self, commands: list[Command]) -> list[Any]:
        """Sends commands of one node together: a reply or an error for each."""
        if len(commands) > 1:
            return await self.pipeline(commands)
        try:
            return [await self.call(commands[0], commands[0][1])]
        except Error as error:
            return [error]

    async def pipeline(self, commands: list[Command]) -> list[Any]:
        """Sends commands of one node in one pipeline: a reply or an error for each."""
        try:
            if len(commands) == 1:
                return [await Hub.call(self, commands[0], commands[0][1])]
            pipeline = self.client.pipeline() if self.is_cluster else self.client.pipeline(transaction=False)
            for words in commands:
                pipeline.execute_command(*words, **RAW)
            replies = await self.of_client(pipeline.execute, raise_on_error=False)
        except BaseException as error:
            return [translated(self.name, error)] * len(commands)
        return [of_redis(self.name, one) if isinstance(one, Exception) else one for one in replies]

    async def ask(self, link: Link, words: Command) -> Any:
        """Sends a command on a connection of its own."""
        answered, replies = self.new_event(), []

        def done(reply: Any) -> None:
            replies.append(reply)
            answered.set()

        link.post(words, done)
        await self.wait(answered, self.patience)
        if not replies:
            link.end(NoAnswer(self.name))
            raise NoAnswer(self.name)
        if isinstance(replies[0], Error):
            raise replies[0]
        return replies[0]

    async def node(self, key: bytes) -> tuple[Any, Any]:
        """The name of the node that serves a key, None outside a cluster, and its client."""
        client = self.client
        if not self.is_cluster:
            return None, client
        with translating(self.name):
            if self.is_asyncio:
                await self.of_client(client.initialize)
            node = client.get_node_from_key(key)
            return node.name, node if self.is_asyncio else client.get_redis_connection(node)

    async def refresh(self) -> None:
        """Reads the slots of a cluster again."""
        with translating(self.name):
            await self.of_client(self.client.nodes_manager.initialize)

    # Owners, holds, endings

    def all_holds(self) -> list[Hold]:
        """What is held, and the lost holds that are not released."""
        return [*self.holds, *self.lost_holds]

    def gone(self, user: object) -> None:
        """A call of the program has ended."""
        self.users.discard(user)
        self._used = now()

    def owner(self) -> bytes:
        """An owner that no other acquisition has."""
        return f"{self.id}:{next(self._numbers)}".encode()

    def begin(self) -> None:
        """The timer is needed. Raises :class:`Closed` when the server object is closed."""
        self.check_open()
        if self._timer is None:
            self.wake()

    def check_open(self) -> None:
        """Raises :class:`Closed` when the server object is closed, or is being closed."""
        if self.is_closing:
            raise Closed("the server object is closed")

    def observe(self, event: str, observed: Optional[Observed], *words: Any) -> None:
        """Tells the observer of an event, if it knows what it is about."""
        if self.observer is not None and observed is not None:
            try:
                getattr(self.observer, event)(observed, *words)
            except Exception as error:
                warn("the observer has failed in %s: %s", event, error)

    def observe_later(self, event: str, observed: Optional[Observed], *words: Any) -> None:
        """The same from the background, or under the guard."""
        if self.observer is not None and observed is not None:
            try:
                self.tell(self.observe, event, observed, *words)
            except Exception as error:
                warn("the observer cannot be called: %s", error)

    def add(self, hold: Hold) -> None:
        """Something is held."""
        with self.guard:
            self.holds.add(hold)
            if hold.link is not None:
                hold.link.on_end = lambda: hold.lose(LostReason.DISCONNECTED)
                if not hold.link.is_open:
                    hold.lose(LostReason.DISCONNECTED)
            self._keep()
            self.plan(hold)

    def plan(self, one: Any) -> None:
        """Wakes the timer if it would come too late."""
        due = one.due
        if due < self.planned:
            # It is back as soon for the next one, or each short lease would wake it.
            self._interval = max(0.001, min(self._interval, due - now()))
            self.wake()

    def _keep(self) -> None:
        if self._kept is None:
            self._kept = self._client()

    def remove(self, hold: Hold) -> None:
        """A hold is over."""
        with self.guard:
            # Its end is last: until then this can be called again.
            self.users.discard(hold)
            self.holds.discard(hold)
            if hold.reason is not None:
                self.lost_holds.discard(hold)
            if hold.link is not None:
                hold.link.on_end = None
            hold.finish()

    def abandon(self, hold: Hold) -> Optional[Ending]:
        """Releases a hold in the background, unless it was released."""
        with self.guard:
            if hold.is_over:
                return None
            ending = self.end(Ending(self, hold.releases(), hold.ends, 0.0, hold.link, True))
            if hold.reason is None:
                self.observe_later("released", hold.observed, hold.held())
            self.remove(hold)
        return ending

    def give_back(self, hold: Hold) -> None:
        """The same, called by any thread."""
        self.post(self.abandon, hold)

    def drop(self, hold: Hold) -> None:
        """Another hold of the same owner has taken the place of this one: it is not released."""
        self.remove(hold)
        if hold.link is not None:
            hold.link.close()

    def end(self, ending: Ending) -> Ending:
        """Sends a release in the background, and closes the connection of a session before."""
        with self.guard:
            self.endings.add(ending)
            self._keep()
            with contextlib.suppress(RuntimeError):
                # No thread can be started at present: the next use sends it.
                self.wake()
        return ending

    def lost_one(self, hold: Hold, reason: LostReason) -> None:
        """A loss was reported."""
        self.counts.losses += 1
        self.holds.discard(hold)
        self.lost_holds.add(hold)
        link = hold.link
        if link is not None and reason in (LostReason.DISCONNECTED, LostReason.UNCONFIRMED):
            # The server may not know of the end of the connection. It does not release before the lease is over: the
            # holder has yet to stop.
            lease, sent = hold.term
            commands, at = hold.claim.give_up(hold.tokens), sent.steady + lease
            self.end(Ending(self, commands, hold.ends + lease, at, link))
        elif link is not None:
            link.on_end = None
            link.close()

    # Waits

    def new_ticket(self) -> Ticket:
        """A new ticket."""
        return Ticket(next(self._numbers), self.new_event())

    def file(self, ticket: Ticket) -> None:
        """Messages to this ticket are heard from here on."""
        with self.guard:
            self.tickets[ticket.number] = ticket
            self._keep()
            if self.planned > now() + self.patience:
                # The subscription is probed.
                self.wake()

    async def subscribe(self, ticket: Ticket, key: bytes) -> bytes:
        """Subscribes to the channel of a key, and returns the channel."""
        channel = self.channel(key)
        node = link = own = None
        try:
            while own is None:
                node, _ = await self.node(key)
                ticket.node = node
                with self.guard:
                    link = self.links.get(node)
                    if link is not None and link.is_open and channel in link.channels:
                        return channel
                    gate = self._gates.get(node)
                    if gate is None:
                        own = self._gates[node] = self.new_event()
                if gate is not None:
                    # Another wait subscribes.
                    await self.wait(gate, self.patience)
                    is_done = gate.is_set()
                    # A signal handler may have raised there.
                    self._close_gate(node, gate)
                    if not is_done:
                        raise NoAnswer(self.name)
            if link is None or not link.is_open:
                link = await self.open(key)
                with self.guard:
                    self.check_open()
                    link.on_message = self.heard
                    link.on_end = lambda: self._ask_again(lambda ticket: bool(ticket.node == node))
                    self.links[node] = link
            await self.ask(link, ("SSUBSCRIBE" if self.is_cluster else "SUBSCRIBE", channel))
            link.channels.add(channel)
            return channel
        except BaseException as error:
            if link is not None and self.links.get(node) is not link:
                link.close()
            if isinstance(error, Refused) and error.code == "MOVED":
                await self.refresh()
            raise
        finally:
            if own is not None:
                self._close_gate(node, own)

    def _close_gate(self, node: Any, gate: Any) -> None:
        gate.set()
        if self._gates.get(node) is gate:
            self._gates.pop(node, None)

    def heard(self, words: list[Any]) -> None:
        """A message of a subscription."""
        if words[0] in (b"sunsubscribe", b"unsubscribe"):
            # The slot is another node's now.
            self.unsubscribed(words[1])
            self._ask_again(lambda ticket: True)
            return
        text = words[2] if len(words) > 2 and isinstance(words[2], bytes) else b""
        message = text.split(b" ", 1 if text.startswith(b"timeout ") else 2)
        with contextlib.suppress(ValueError):
            ticket = self.tickets.get(int(message[-1]))
            if ticket is not None and len(message) > 1:
                ticket.message = message
                ticket.event.set()

    def unsubscribed(self, channel: bytes) -> None:
        """No connection is subscribed to this channel."""
        for link in list(self.links.values()):
            link.channels.discard(channel)

    def _ask_again(self, concerns: Callable[[Ticket], bool]) -> None:
        for ticket in list(self.tickets.values()):
            if concerns(ticket):
                ticket.event.set()

    def channel(self, key: bytes) -> bytes:
        """The channel for the messages of a key, in a cluster one of the key's slot."""
        if not self.is_cluster:
            return f"lock:tickets:{self.id}".encode()
        slot = key_slot(key)
        if slot not in self._channels:
            tags = (tag for tag in itertools.count() if key_slot(b"%d" % tag) == slot)
            self._channels[slot] = b"lock:tickets:%s:{%d}" % (self.id.encode(), next(tags))
        return self._channels[slot]

    # The timer

    def _is_busy(self) -> bool:
        """Whether something is held, waited for or under way."""
        # A loss is reported before the lease ends, and until then the program may release the lock.
        return bool(
            self.holds
            or self.endings
            or self.tickets
            or self.users
            or any(hold.term[1].steady + hold.lease > now() for hold in list(self.lost_holds))
        )

    def tick(self, moment: float) -> list[Job]:
        """Reports losses, and plans the next tick; what is to be sent now."""
        late = moment - self.planned
        jobs: list[Job] = []
        for hold in list(self.holds):
            hold.ask_bound(moment, late > hold.lease / 6)
            hold.check(moment)
        if any(hold.due <= moment for hold in list(self.holds)):
            # Together with those that are due soon.
            jobs = [job for job in map(self._renewal, list(self.holds)) if job is not None]
        jobs += [job for job in (ending.job(moment) for ending in list(self.endings)) if job is not None]
        for node, link in list(self.links.items()):
            if self.tickets and link.channels:
                link.probe(moment, self.patience)
            elif moment - self._used > IDLE:
                link.close()
            if not link.is_open:
                self.links.pop(node, None)
        if len(self.contended) > _CONTENDED:
            self.contended.clear()
        if self._is_busy():
            self._used = moment
        elif self._is_shared:
            self._kept = None
        # Copies: a dropped permit is given back whenever the garbage collector runs.
        dues = [hold.due for hold in list(self.holds)] + [ending.due for ending in list(self.endings)]
        self.planned = min([*dues, moment + min(self._interval, self.patience / 2 if self.tickets else IDLE / 2)])
        self._interval = min(_LONGEST, self._interval * 2)
        return jobs

    def _renewal(self, hold: Hold) -> Optional[Job]:
        found = hold.renewal(now() + hold.lease / 10)
        if found is None:
            return None
        (commands, lease), present, sent, answered = found, hold.lease, Moment(), self.new_event()
        hold.renewing.add(answered)

        def done(replies: list[Any]) -> None:
            hold.renewing.discard(answered)
            answered.set()
            hold.renewed(replies, lease, sent, present)

        return Job(commands, done)

    async def flush(self, jobs: list[Job]) -> list[Any]:
        """Sends the commands of each node by itself, in the background, as a server may hang."""
        groups: dict[Any, list[Job]] = {}
        for job in jobs:
            node = None
            with contextlib.suppress(Error):
                node, _ = await self.node(job.commands[0][1])
            groups.setdefault(node, []).append(job)
        parts = [group[at : at + PIPELINE] for group in groups.values() for at in range(0, len(group), PIPELINE)]
        return [self.start(self._send(part)) for part in parts]

    async def _send(self, jobs: list[Job]) -> None:
        replies: list[Any] = []
        try:
            replies = await self.batch([command for job in jobs for command in job.commands])
        finally:
            with self.guard:
                for job in jobs:
                    count = len(job.commands)
                    job.done(replies[:count] or [NoAnswer(self.name)] * count)
                    replies = replies[count:]
        self.wake()

    def _may_end(self) -> bool:
        """Whether the timer has nothing to do any more. Then it closes the subscriptions."""
        if not self.is_closed and (self._is_busy() or not (self._is_retired or now() - self._used > IDLE)):
            return False
        self._close_links()
        return True

    def retire(self) -> None:
        """The client is gone: the timer ends when nothing is held any more."""
        self._is_retired = True
        if self._timer is not None:
            self.wake()

    # The end

    def give_back_renewed(self) -> None:
        """The interpreter or the event loop ends: releases what was renewed."""
        with self.guard:
            for hold in list(self.holds):
                if hold.renews:
                    self.abandon(hold)

    async def settle(self, seconds: Optional[float], waits_for_users: bool = False) -> list[tuple[bytes, Error]]:
        """Waits until the background releases have ended; those that have failed since the last call."""
        end = float("inf") if seconds is None else now() + seconds
        while (self.endings or (waits_for_users and self.users)) and now() < end:
            # sleep: polls, at most this late
            await self.sleep(min(0.01, max(0.0, end - now())))
        failed, self.failed = self.failed, []
        return failed

    async def close(self) -> None:
        """Ends the waits, releases what is held, and closes everything. Called again after an interrupt, it goes on."""
        if not self.is_closed:
            self._begin_closing()
            await self.settle(self.patience, waits_for_users=True)
        self.close_now()

    def _begin_closing(self) -> None:
        with self.guard:
            self.is_closing = True
            for ticket in self.tickets.values():
                ticket.event.set()
            for checks in self.checks.values():
                checks.end()
            for hold in self.all_holds():
                if hold.reason is None or len(hold.tokens) > 1 or hold.reason is LostReason.UNCONFIRMED:
                    self.abandon(hold)
                else:
                    self.remove(hold)

    def close_now(self) -> None:
        """Closes the connections, and sends nothing any more."""
        with self.guard:
            self.is_closing = self.is_closed = True
            for ending in list(self.endings):
                ending.fail(NoAnswer(self.name))
            for hold in self.all_holds():
                self.remove(hold)
                if hold.link is not None:
                    hold.link.close()
        self._close_links()

    def _close_links(self) -> None:
        with self.guard:
            links, self.links = self.links, {}
        for link in links.values():
            link.close()


#: All hubs for threads, and those of asyncio by their clients.
HUBS: weakref.WeakSet[Any] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def hub_of(client: Any, kind: Any) -> Any:
    """The hub of a server object, or the one that the locks of a client share."""
    hub = getattr(client, "_hub", None)
    if isinstance(hub, kind):
        return hub
    check_client(client, kind.is_asyncio)
    with _lock:
        found = _shared.get(client)
        if found is None:
            found = _shared[client] = kind(client, is_shared=True)
            weakref.finalize(client, found.retire).atexit = False
    return found


def _begin_anew() -> None:
    global _lock
    _lock = threading.RLock()
    for hub in list(HUBS):
        hub.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
