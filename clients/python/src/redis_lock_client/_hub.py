"""What the locks of one client share: the holds and their renewal, the tickets, and the releases in the background.

Nothing here does I/O. A timer calls :meth:`Hub.tick`, which reports losses and returns what is to be sent.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import uuid
import weakref
from typing import Any, Callable, NamedTuple, Optional

from redis.crc import key_slot

from ._effects import Call, Event
from ._hold import Hold, Moment, now
from ._link import Link
from ._terms import Claim, Command
from .errors import Closed, Error, NoAnswer, Refused
from .outcome import LostReason, Released
from .statistics import Statistics

#: How long an unused timer or subscription stays.
IDLE = 30.0
#: The response timeout of what runs in the background, if the client has no `socket_timeout`.
_PATIENCE = 5.0
#: The longest time between two ticks.
_LONGEST = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class Delay:
    """Growing pauses between attempts to reach a server."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def next(self) -> float:
        """The next pause, in seconds."""
        span, self._next = self._next, min(self._next * 2, _LONGEST_PAUSE)
        return span * (1 + random.random()) / 2


class Job(NamedTuple):
    """Commands of one hold, and what gets their replies (numbers or errors)."""

    calls: list[Call]
    done: Callable[[list[Any]], None]


class Ticket:
    """A wait in the server's queue."""

    __slots__ = ("event", "message", "node", "number")

    def __init__(self, number: int, event: Event) -> None:
        self.number = number
        self.event = event
        self.node: Any = None
        #: The words of its message.
        self.message: Optional[list[bytes]] = None


class Ending:
    """A release, or the end of an acquisition that was given up: repeated until it is answered or there is nothing left
    to release."""

    def __init__(self, hub: Hub, claim: Claim, commands: list[Command], over: float, at: float, link: Any) -> None:
        self.event = hub.new_event()
        self.claim = claim
        #: What the server said, or why that is not known.
        self.result: Any = None
        self.at = at
        self.is_sent = False
        #: Whether it is the release of a hold, and not of what may have been granted.
        self.is_hold = False
        self._hub = hub
        self._commands = commands
        self._over = over
        self._link = link
        self._delay = Delay()
        self._error: Error = NoAnswer(hub.name)
        self._failed: list[bytes] = []
        self._is_held = True

    @property
    def due(self) -> float:
        """When the timer has something to do with it."""
        return float("inf") if self.is_sent else self.at

    def job(self, moment: float) -> Optional[Job]:
        """What is to be sent now."""
        if self.is_sent or self.at > moment:
            return None
        if self._over <= moment:
            self.fail(self._error)
            return None
        self.is_sent = True
        if self._link is not None:
            self._link.close()
        return Job([Call(command, self.claim.key) for command in self._commands], self._answered)

    def again(self) -> Optional[Job]:
        """The same, also if the answer of an attempt is missing: the event loop ends."""
        self.is_sent, self.at = False, min(self.at, now())
        return self.job(now())

    def _answered(self, replies: list[Any]) -> None:
        self.is_sent = False
        rest = []
        for command, reply in zip(self._commands, replies):
            if not isinstance(reply, Error):
                # Nothing held may mean that an earlier request was served.
                self._is_held = self._is_held and self.claim.was_held(command, reply)
            elif not isinstance(reply, Refused):
                rest.append(command)
                self._error = reply
            elif command[0] == "LOCK.MRELEASE":
                # Each key by itself: one may hold something else, or have moved, or the user may not run this command.
                rest += self.claim.release_each(None, is_final=True)
                self._error, self.at = reply, 0.0
            elif reply.code in ("WRONGTYPE", "LOCKTYPE"):
                self._is_held = False
            elif reply.is_passing:
                rest.append(command)
                self._error = reply
            else:
                self._failed.append(bytes(command[1]))
                self._error = reply
        self._commands = rest
        if rest:
            self.at = now() + self._delay.next()
            self._hub.plan(self)
        elif self._failed:
            self.fail(self._error)
        else:
            self._finish(Released.YES if self._is_held else Released.NOT_HELD)
            self._hub.counts.releases += self.is_hold

    def fail(self, error: Error) -> None:
        """It is given up: the server ends the hold with its lease."""
        keys = self._failed + [bytes(command[1]) for command in self._commands if command[0] != "LOCK.MRELEASE"]
        if any(command[0] == "LOCK.MRELEASE" for command in self._commands):
            keys = list(self.claim.keys)
        self._hub.failed += [(key, error) for key in keys]
        self._hub.counts.releases_failed += 1
        self._finish(error)

    def _finish(self, result: Any) -> None:
        self.result = result
        self._hub.endings.discard(self)
        self.event.set()


class Hub:
    """The state of the locks of one client, or of one server object; of asyncio, in one event loop."""

    def __init__(self, client: Any, counts: Statistics, is_shared: bool) -> None:
        #: Several threads use the state under this guard.
        self.guard: Any = contextlib.nullcontext()
        self.counts = counts
        self.is_cluster = hasattr(client, "get_node_from_key")
        options = options_of(client)
        self.name = name_of(client, options)
        #: How long a request in the background is waited for.
        self.patience = float(options.get("socket_timeout") or _PATIENCE)
        self._client = weakref.ref(client)
        # A shared client is kept alive only as long as there is something to do for it.
        self._kept: Any = None if is_shared else client
        self._is_shared = is_shared
        self.is_closing = False
        self.is_closed = False
        self._is_retired = False
        #: When the timer looks again.
        self.planned = float("inf")
        self._channels: dict[int, bytes] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is held, and no owner of before is used again: in a new object, and in a forked child."""
        for hold in [*getattr(self, "holds", ()), *getattr(self, "lost_holds", ())]:
            hold.disinherit()
        self.id = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self.holds: set[Hold] = set()
        #: The lost holds that the program still refers to. Weak, so that one that is not released takes no memory.
        self.lost_holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        self.endings: set[Ending] = set()
        self.failed: list[tuple[bytes, Error]] = []
        self.tickets: dict[int, Ticket] = {}
        self.waiting = 0
        #: The calls under way.
        self.users: set[object] = set()
        self.links: dict[Any, Link] = {}
        self.gates: dict[Any, Event] = {}
        self.used = now()

    @property
    def client(self) -> Any:
        """The program's client.

        :raises Closed: when it was collected.
        """
        client = self._kept if self._kept is not None else self._client()
        if client is None:
            raise Closed("the client is gone")
        return client

    # What the drivers add

    def new_event(self) -> Any:
        """An event for :class:`Await`."""
        raise NotImplementedError

    def wake(self) -> None:
        """Wakes the timer, and starts it if there is none."""
        raise NotImplementedError

    def tell(self, function: Callable[[LostReason], Any], reason: LostReason) -> None:
        """Calls a function of the program."""
        raise NotImplementedError

    def begin(self) -> None:
        """The timer is needed.

        :raises Closed: when the server object is closed.
        """
        raise NotImplementedError

    def give_back(self, hold: Hold) -> None:
        """Releases a hold in the background; called by any thread."""
        raise NotImplementedError

    # Owners, holds, endings

    def owner(self) -> bytes:
        """An owner that no other acquisition has."""
        return f"{self.id}:{next(self._numbers)}".encode()

    def check_open(self) -> None:
        """Raises :class:`Closed` when the server object is closed, or is being closed."""
        if self.is_closing or self.is_closed:
            raise Closed("the server object is closed")

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
        if one.due < self.planned:
            self.wake()

    def _keep(self) -> None:
        if self._kept is None:
            self._kept = self._client()

    def remove(self, hold: Hold) -> None:
        """A hold is over."""
        with self.guard:
            hold.is_released = True
            self.holds.discard(hold)
            self.lost_holds.discard(hold)
            if hold.link is not None:
                hold.link.on_end = None
        hold.notice.finish()

    def abandon(self, hold: Hold) -> Optional[Ending]:
        """Releases a hold in the background, unless it was released."""
        with self.guard:
            if hold.is_released:
                return None
            ending = self.end(hold.claim, hold.releases(), hold.ends, link=hold.link)
            ending.is_hold = True
            self.remove(hold)
        return ending

    def end(self, claim: Claim, commands: list[Command], over: float, at: float = 0.0, link: Any = None) -> Ending:
        """Sends a release in the background until this time, and closes the connection of a session before."""
        ending = Ending(self, claim, commands, over, at, link)
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
        with self.guard:
            self.holds.discard(hold)
            self.lost_holds.add(hold)
            link = hold.link
            if link is not None and reason in (LostReason.DISCONNECTED, LostReason.UNCONFIRMED):
                # The server may not know of the end of the connection. It does not release before the lease is over:
                # the holder has yet to stop.
                lease, sent = hold.term
                self.end(hold.claim, hold.claim.give_up(hold.tokens), hold.ends + lease, sent.steady + lease, link)
            elif link is not None:
                link.on_end = None
                link.close()

    # Tickets

    def file(self) -> Ticket:
        """A new ticket."""
        with self.guard:
            ticket = Ticket(next(self._numbers), self.new_event())
            self.tickets[ticket.number] = ticket
            self._keep()
            if self.planned > now() + self.patience:
                # The subscription is probed.
                self.wake()
        return ticket

    def drop(self, ticket: Optional[Ticket]) -> None:
        """A wait is over."""
        if ticket is not None:
            self.tickets.pop(ticket.number, None)

    def heard(self, words: list[Any]) -> None:
        """A message of a subscription."""
        if words[0] in (b"sunsubscribe", b"unsubscribe"):
            # The slot is another node's now.
            self._ask_again(lambda ticket: True, words[1])
            return
        text = words[2] if len(words) > 2 and isinstance(words[2], bytes) else b""
        message = text.split(b" ", 1 if text.startswith(b"timeout ") else 2)
        with contextlib.suppress(ValueError):
            ticket = self.tickets.get(int(message[-1]))
            if ticket is not None and len(message) > 1:
                ticket.message = message
                ticket.event.set()

    def subscription_ended(self, node: Any) -> None:
        """All who wait there subscribe and ask again."""
        self._ask_again(lambda ticket: ticket.node == node)

    def _ask_again(self, concerns: Callable[[Ticket], bool], channel: Optional[bytes] = None) -> None:
        if channel is not None:
            for link in self.links.values():
                link.channels.discard(channel)
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

    def check_slots(self, keys: tuple[bytes, ...]) -> bool:
        """Whether the keys are in one slot, where that counts."""
        return not self.is_cluster or len({key_slot(key) for key in keys}) == 1

    # The timer

    @property
    def is_busy(self) -> bool:
        """Whether something is held, waited for or under way."""
        return bool(
            self.holds or self.endings or self.tickets or self.users or any(map(_may_last, list(self.lost_holds)))
        )

    def tick(self, moment: float) -> tuple[list[Job], float]:
        """Reports losses; what is to be sent now, and when to look again."""
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
            if self.tickets:
                link.probe(moment, self.patience)
            elif moment - self.used > IDLE:
                link.close()
            if not link.is_open:
                self.links.pop(node, None)
        if self.is_busy:
            self.used = moment
        elif self._is_shared:
            self._kept = None
        dues = [one.due for one in list(self.holds)] + [one.due for one in list(self.endings)]
        return jobs, min([*dues, moment + min(_LONGEST, self.patience / 2 if self.tickets else IDLE / 2)])

    def _renewal(self, hold: Hold) -> Optional[Job]:
        found = hold.renewal(now() + hold.lease / 10)
        if found is None:
            return None
        (commands, lease), present, sent = found, hold.lease, Moment()
        calls = [Call(command, hold.claim.key) for command in commands]
        return Job(calls, lambda replies: hold.renewed(replies, lease, sent, present))

    def done(self, job: Job, replies: list[Any]) -> None:
        """The replies to a job."""
        with self.guard:
            job.done(replies)

    @property
    def may_end(self) -> bool:
        """Whether the timer has nothing to do any more."""
        if self.is_closed:
            return True
        return not self.is_busy and (self._is_retired or now() - self.used > IDLE)

    def retire(self) -> None:
        """The client is gone: the timer ends when nothing is held any more."""
        self._is_retired = True
        with contextlib.suppress(RuntimeError):
            self.wake_timer()

    def wake_timer(self) -> None:
        """Wakes the timer if there is one."""
        raise NotImplementedError

    # The end

    def begin_closing(self) -> None:
        """Ends the waits, and releases what is held."""
        with self.guard:
            self.is_closing = True
            for ticket in self.tickets.values():
                ticket.event.set()
            for hold in [*self.holds, *self.lost_holds]:
                if hold.notice.reason is None or hold.claim.is_multi or hold.notice.reason is LostReason.UNCONFIRMED:
                    self.abandon(hold)
                else:
                    self.remove(hold)

    def close_now(self) -> None:
        """Closes the connections, and sends nothing any more."""
        with self.guard:
            self.is_closing = self.is_closed = True
            for ending in list(self.endings):
                ending.fail(NoAnswer(self.name))
            for hold in [*self.holds, *self.lost_holds]:
                self.remove(hold)
                if hold.link is not None:
                    hold.link.close()
            links, self.links = list(self.links.values()), {}
        for link in links:
            link.close()

    def statistics(self) -> Statistics:
        """The counters, and the present numbers."""
        found = Statistics(**vars(self.counts))
        found.holds, found.waiting = len(self.holds) + len(self.lost_holds), self.waiting
        return found


def _may_last(hold: Hold) -> bool:
    # A loss is reported before the lease ends, and until then the program may release the lock.
    lease, sent = hold.term
    return sent.steady + lease > now()


def options_of(client: Any) -> dict[str, Any]:
    """The options of the connections of a client."""
    found: Any = client.get_connection_kwargs()
    return dict(found)


def name_of(client: Any, options: dict[str, Any]) -> str:
    """The name of a server in messages, without credentials."""
    if "path" in options:
        return str(options["path"])
    pool: Any = getattr(client, "connection_pool", None)
    if hasattr(pool, "service_name"):
        return f"{pool.service_name} of sentinels"
    nodes = getattr(getattr(client, "nodes_manager", None), "startup_nodes", None)
    if nodes:
        return ",".join(sorted(nodes))
    host = str(options.get("host", "localhost"))
    return f"{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}"
