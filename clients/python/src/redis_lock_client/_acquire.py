"""The steps of an acquisition, of a wait for a latch, and of a subscription. See ``_effects`` for what a step is.

An acquisition asks once. If the lock is not free it subscribes to the channel of this client and asks as a ticket
(``NOTIFY``); the message ``granted`` is confirmed by a renewal. When a connection breaks it subscribes and asks again
with the same owner, which keeps its place. Given up, it is made final (``Claim.give_up``).
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, Optional

from ._effects import Ask, Await, Batch, Call, Open, Pause, Place, Refresh
from ._hold import RELEASED_FOR, Hold, Moment, OnLost, lease_of, now
from ._hub import Delay, Hub, Ticket
from ._link import Link
from ._terms import Claim, Command, Terms, Tokens, millis
from .errors import ConnectionFailed, Error, NoAnswer, Refused, bad_reply, refused

logger = logging.getLogger("redis_lock_client")

Steps = Generator[Any, Any, Any]

#: When a wait that cannot reach its server warns, and how often from then on.
_WARNS_AFTER, _WARNS_EVERY = 3.0, 30.0


def left(end: Optional[float]) -> float:
    """The time left until this end; without an end, more than any wait."""
    return float("inf") if end is None else max(0.0, end - now())


def subscribe(hub: Hub, ticket: Ticket, key: bytes) -> Steps:
    """Subscribes to the channel of a key, and returns the channel."""
    channel = hub.channel(key)
    while True:
        node = ticket.node = yield Place(key)
        with hub.guard:
            link = hub.links.get(node)
            if link is not None and link.is_open and channel in link.channels:
                return channel
            gate = hub.gates.get(node)
            if gate is None:
                own = hub.gates[node] = hub.new_event()
        if gate is None:
            break
        # Another wait subscribes.
        yield Await(gate, hub.patience)
        if not gate.is_set():
            raise NoAnswer(hub.name)
    try:
        if link is None or not link.is_open:
            link = yield Open(key)
            _begin(hub, link, node)
        word = "SSUBSCRIBE" if hub.is_cluster else "SUBSCRIBE"
        yield Ask(link, (word, channel))
        link.channels.add(channel)
        return channel
    except Refused as error:
        if error.code == "MOVED":
            yield Refresh()
        raise
    finally:
        hub.gates.pop(node, None)
        own.set()


def _begin(hub: Hub, link: Link, node: Any) -> None:
    with hub.guard:
        hub.check_open()
        link.on_message = hub.heard
        link.on_end = lambda: hub.subscription_ended(node)
        hub.links[node] = link


class Wait:
    """A request that waits in the server's queue until it is answered, or its limit has come."""

    def __init__(self, hub: Hub, key: bytes, limit: Optional[float]) -> None:
        self.hub = hub
        self.key = key
        self.limit = limit
        #: Whether a request had no answer, so that it may be served yet; whether a ticket may be granted.
        self.is_unanswered = self.has_place = False
        #: Whether a grant is not confirmed yet.
        self.is_granted = False
        self._end: Optional[float] = None
        self._ticket: Optional[Ticket] = None
        self._has_answer = self._is_silent = False
        self._is_queued = False
        self._begun = self._warns_at = now()

    # What the kinds of waits have of their own

    def command(self) -> Command:
        """The request, as it is sent without a ticket."""
        raise NotImplementedError

    def ask(self, command: Command) -> Steps:
        """Sends the request."""
        return (yield Call(command, self.key))

    def granted(self, reply: Any, sent: Moment) -> Steps:
        """The result of a reply; None when the request was not granted."""
        raise NotImplementedError
        yield

    def confirm(self, message: list[bytes]) -> Steps:
        """The result of the message of a grant; None when that does not hold."""
        raise NotImplementedError
        yield

    # The steps

    def steps(self) -> Steps:
        """Asks until the request is granted; None when it is not at the end."""
        self._end = None if self.limit is None else now() + self.limit
        delay = Delay()
        has_ticket = self.limit != 0 and any(link.channels for link in list(self.hub.links.values()))
        failure: Optional[Error] = None
        try:
            while True:
                self.hub.check_open()
                try:
                    result = yield from self._round(has_ticket)
                    failure = None
                except Error as error:
                    is_second = failure is not None
                    if failure is not None and error is not failure:
                        error.__cause__ = error.__cause__ or failure
                    failure = error
                    if not self._passes(error) or (is_second and not left(self._end)):
                        raise
                    self._warn(error)
                    if getattr(error, "code", None) != "NOSUBSCRIBER" or is_second:
                        yield Pause(min(delay.next(), max(left(self._end), 0.02)))
                    continue
                if result is not None:
                    self.hub.check_open()
                    return result
                if not left(self._end):
                    return None
                if not has_ticket:
                    has_ticket = True
                else:
                    delay = Delay()
        finally:
            self.hub.drop(self._ticket)
            if self._is_queued:
                self._is_queued = False
                self.hub.waiting -= 1

    def _round(self, has_ticket: bool) -> Steps:
        command = self.command()
        if has_ticket:
            ticket = self._ticket = self._ticket or self.hub.file()
            channel = yield from subscribe(self.hub, ticket, self.key)
            ticket.message = None
            ticket.event.clear()
            block = 0 if self._end is None else max(1, millis(left(self._end)))
            command = (*command, "BLOCK", block, "NOTIFY", channel, ticket.number)
        sent = Moment()
        # Until the reply is handled: a signal handler may raise in between.
        self.is_granted = True
        try:
            reply = yield from self.ask(command)
        except Error as error:
            self.is_granted = False
            self._has_answer = self._has_answer or isinstance(error, Refused)
            if getattr(error, "code", None) == "NOSUBSCRIBER":
                self._unsubscribed()
            raise
        self._has_answer = True
        self._begun = self._warns_at = now()
        if reply not in (b"QUEUED", "QUEUED"):
            result = yield from self.granted(reply, sent)
            self.is_granted = result is not None
            if result is None and has_ticket:
                raise bad_reply(self.hub.name)
            self.has_place = False
            return result
        self._count()
        self.has_place = True
        self.is_granted = False
        # The server ends the wait at its limit, and says so.
        yield Await(ticket.event, None if self._end is None else left(self._end) + self.hub.patience)
        self.hub.check_open()
        message = ticket.message
        if message is None:
            self._is_silent = not ticket.event.is_set()
            if self._is_silent or not left(self._end):
                raise NoAnswer(self.hub.name)
            return None
        if message[0] == b"timeout":
            self.has_place = False
            return None
        if message[0] == b"granted":
            self.is_granted = True
            self.has_place = False
            return (yield from self.confirm(message))
        raise refused(self.hub.name, message[1].decode("ascii", "replace"), "the wait was ended")

    def _passes(self, error: Error) -> bool:
        if self.limit == 0 or self._is_silent or not error.is_passing:
            return False
        # The first request fails at once, in the words of the transport.
        if isinstance(error, Refused):
            return error.code != "READONLY" or self._is_queued
        return self._has_answer

    def _warn(self, error: Error) -> None:
        if now() - self._begun >= _WARNS_AFTER and now() >= self._warns_at:
            self._warns_at = now() + _WARNS_EVERY
            name = self.key.decode("utf-8", "replace")
            logger.warning("the wait for %s goes on for %.0f s: %s", name, now() - self._begun, error)

    def _unsubscribed(self) -> None:
        channel = self.hub.channel(self.key)
        for link in self.hub.links.values():
            link.channels.discard(channel)

    def _count(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self.hub.counts.waits += 1
            self.hub.waiting += 1


class Acquisition(Wait):
    """The acquisition of a lock, of several, or of a permit."""

    def __init__(self, hub: Hub, terms: Terms, limit: Optional[float], on_lost: Optional[OnLost]) -> None:
        super().__init__(hub, terms.key, limit)
        self.hold: Optional[Hold] = None
        self._terms = terms
        self._on_lost = on_lost
        self._claim: Claim = terms.claim(hub.owner())
        #: The connection of a session.
        self._link: Optional[Link] = None
        self._is_over = False

    def steps(self) -> Steps:
        counts = self.hub.counts
        try:
            hold = yield from super().steps()
        except Error:
            counts.acquisitions_failed += 1
            self.give_up()
            raise
        except BaseException:
            self.give_up()
            raise
        if hold is None:
            counts.acquisitions_refused += 1
            self.give_up()
            return None
        counts.acquisitions += 1
        return hold

    def command(self) -> Command:
        return self._claim.acquire(self._terms.lease, self._terms.is_session)

    def ask(self, command: Command) -> Steps:
        was_unanswered, self.is_unanswered = self.is_unanswered, True
        if self._terms.is_session:
            reply = yield from self._ask_bound(command, was_unanswered)
            self.is_unanswered = was_unanswered
            return reply
        call = Call(command, self.key)
        try:
            reply = yield call
        except Error as error:
            if call.verb.sends == 0 or (call.verb.sends == 1 and isinstance(error, Refused)):
                self.is_unanswered = was_unanswered
            raise
        # redis-py may have sent it twice: then it may be served twice.
        self.is_unanswered = was_unanswered or call.verb.sends != 1
        return reply

    def _ask_bound(self, command: Command, was_unanswered: bool) -> Steps:
        if self._link is None or not self._link.is_open:
            if self._claim.is_fresh and was_unanswered:
                # A request of before may be served late, and would bind the hold to a connection that has ended.
                self._end_claim()
                command = self.command()
            self._link = None
            self._link = yield Open(self.key)
            self._link.on_end = self._wake
        try:
            return (yield Ask(self._link, command))
        except Refused as error:
            if error.code in ("MOVED", "ASK"):
                self._link.close()
                yield Refresh()
            raise

    def _wake(self) -> None:
        if self._ticket is not None:
            self._ticket.event.set()

    def granted(self, reply: Any, sent: Moment) -> Steps:
        tokens = self._claim.granted(reply, self.hub.name)
        if tokens is None:
            return None
        if self._terms.is_session:
            return (yield from self._confirm_bound(tokens))
        return self._take(tokens, self._terms.lease, sent)

    def confirm(self, message: list[bytes]) -> Steps:
        try:
            tokens = tuple(int(number) for number in message[1].split(b","))
        except ValueError:
            return None
        if len(tokens) != len(self._claim.keys):
            return None
        if self._terms.is_session:
            return (yield from self._confirm_bound(tokens))
        lease, sent = self._terms.lease, Moment()
        replies = yield Batch([Call(one, self.key) for one in self._claim.renew(lease, tokens)])
        for reply in replies:
            if isinstance(reply, Error):
                raise reply
        if all(reply == 1 for reply in replies):
            return self._take(tokens, lease, sent)
        if any(reply == 1 for reply in replies):
            # A wait holds none.
            self._end_claim()
        return None

    def _confirm_bound(self, tokens: Tokens) -> Steps:
        assert self._link is not None
        sent = Moment()
        self.is_granted = True
        if (yield Ask(self._link, self._claim.renew(None, tokens)[0])) != 1:
            return None
        lease = lease_of((yield Ask(self._link, ("LOCK.INFO", self.key))), self._claim.owner)
        if lease is None:
            raise bad_reply(self.hub.name)
        if not self._link.is_open:
            raise ConnectionFailed(self.hub.name, "the connection has ended")
        return self._take(tokens, lease, sent)

    def _take(self, tokens: Tokens, lease: float, sent: Moment) -> Hold:
        hold = self.hold = Hold(self.hub, self._terms, self._claim, tokens, lease, sent, self._on_lost, self._link)
        hold.is_unanswered = self.is_unanswered
        self.hub.add(hold)
        return hold

    def give_up(self) -> None:
        """Ends what the acquisition has at the server, or may get there yet."""
        if self._is_over:
            return
        self._is_over = True
        if self.hold is not None:
            self.hub.abandon(self.hold)
            return
        if self.is_unanswered or self.has_place or self.is_granted:
            self._end_claim()
        if self._link is not None:
            self._link.close()

    def _end_claim(self) -> None:
        """Ends what this claim has; the next request has another one."""
        span = RELEASED_FOR if self._terms.is_session else max(self._terms.lease, self.hub.patience)
        self.hub.end(self._claim, self._claim.give_up(), now() + span)
        self.is_unanswered = self.has_place = self.is_granted = False
        self._claim = self._terms.claim(self.hub.owner())


class LatchWait(Wait):
    """A wait until a latch is open."""

    def command(self) -> Command:
        return ("LATCH.WAIT", self.key)

    def granted(self, reply: Any, sent: Moment) -> Steps:
        return True if reply == 1 else None
        yield

    def confirm(self, message: list[bytes]) -> Steps:
        return True
        yield
