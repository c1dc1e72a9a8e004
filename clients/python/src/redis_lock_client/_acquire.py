"""An acquisition, from the first request to the hold.

It asks once. If the lock is not free it subscribes to the channel of this client and asks as a ticket (``NOTIFY``);
after the message ``granted`` it asks once more. When a connection breaks it subscribes and asks again with the same
owner, which keeps its place. Given up, it is made final (``Terms.give_up``).
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Optional

from ._ending import FIRST_PAUSE, LONGEST_PAUSE, Ending, jittered
from ._hold import RELEASED_FOR, Hold, Moment, OnLost, now, warn
from ._hub import Hub, Ticket
from ._info import lock_info
from ._link import Link
from ._replicas import replicated
from ._terms import Command, Terms, Verb, millis
from .errors import ConnectionFailed, Error, NoAnswer, NoSemaphore, NotOwned, NotReplicated, Refused, bad_reply, refused
from .observer import Observed

#: When a wait that cannot reach its server warns, and how often from then on.
_WARNS_AFTER, _WARNS_EVERY = 3.0, 30.0
_QUEUED = (b"QUEUED", "QUEUED")


class Acquisition:
    """The acquisition of a lock, of several, or of a permit: a request that waits in the server's queue until it is
    answered, or its limit has come."""

    #: Whether it counts as an acquisition.
    is_counted = 1
    hold: Optional[Hold] = None
    #: Whether a request had no answer, and may be served yet; whether the server may have a hold or a ticket.
    is_unanswered = may_be_there = False
    _has_answer = _is_queued = False
    _ticket: Optional[Ticket] = None
    #: The connection of a session.
    _link: Optional[Link] = None
    _end: Optional[float] = None
    _begun = _warns_at = 0.0

    def __init__(self, hub: Hub, terms: Terms, limit: Optional[float], on_lost: Optional[OnLost] = None) -> None:
        self.hub = hub
        self.key = terms.keys[0]
        self.limit = limit
        self._terms = terms
        self._on_lost = on_lost
        self._claim = terms.claim(hub.owner())

    async def run(self, keep: Callable[[Any], Any] = bool) -> Any:
        """Asks until the request is granted, and returns what this function makes of the result; None when it is not
        granted at the end."""
        hub, begun = self.hub, now()
        observed = None
        if hub.observer is not None:
            observed = self._observed()
            hub.observe("asked", observed)
        try:
            result = await self._run()
            kept = None if result is None else keep(result)
        except BaseException as error:
            # Also if a signal handler has raised, at any moment.
            self.give_up()
            hub.observe("answered", observed, False, now() - begun, error)
            raise
        if observed is not None:
            if self.hold is not None:
                self.hold.observed = observed
            hub.observe("answered", observed, result is not None, now() - begun, None)
        return kept

    def _observed(self) -> Observed:
        return self._terms.observed

    async def _run(self) -> Any:
        hub, counts = self.hub, self.hub.counts
        self._begun = self._warns_at = now()
        self._end = None if self.limit is None else self._begun + self.limit
        pause = FIRST_PAUSE
        must_exist = self._terms.is_permit and self._terms.limit is None
        # With a subscription the first request may wait.
        has_ticket = (
            self.key in hub.contended
            and not must_exist
            and self.limit != 0
            and any(link.channels for link in list(hub.links.values()))
        )
        failure: Optional[Error] = None
        try:
            hub.users.add(self)
            while True:
                if has_ticket and hub.is_asyncio:
                    # Two turns of the loop later, the task to which the last release has granted the lock has sent its
                    # request, and this one shares a pipeline with the release of that task.
                    await hub.sleep(0)
                    await hub.sleep(0)
                hub.check_open()
                try:
                    result = await self._ask_once(has_ticket)
                    failure = None
                except Error as error:
                    is_second = failure is not None
                    if failure is not None and error is not failure:
                        error.__cause__ = error.__cause__ or failure
                    failure = error
                    if not self._passes(error) or (is_second and not self._left()):
                        raise
                    self._warn(error)
                    if getattr(error, "code", None) != "NOSUBSCRIBER" or is_second:
                        await hub.sleep(min(jittered(pause), max(self._left(), 0.02)))
                        pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                if result is not None:
                    if has_ticket and not self._is_queued:
                        hub.contended.discard(self.key)
                    hub.check_open()
                    counts.acquisitions += self.is_counted
                    return result
                if must_exist:
                    must_exist = False
                    await self._check_semaphore()
                if not self._left():
                    counts.acquisitions_refused += self.is_counted
                    self.give_up()
                    return None
                if has_ticket:
                    pause = FIRST_PAUSE
                has_ticket = True
                hub.contended.add(self.key)
        except BaseException as error:
            counts.acquisitions_failed += self.is_counted and isinstance(error, Error)
            self.give_up()
            raise
        finally:
            self._leave()

    async def _check_semaphore(self) -> None:
        """Raises when nobody has created the semaphore: a wait for it might never end."""
        found: Any = True
        with contextlib.suppress(Error):
            found = await self.hub.call((Verb("EXISTS"), self.key), self.key)
        if found == 0:
            name = self.key.decode("utf-8", "replace")
            raise NoSemaphore(f"There is no semaphore {name}: create it with limit= or set()", self.key)

    def _leave(self) -> None:
        """Nothing waits for the request any more. Called again after an interrupt, it goes on."""
        hub = self.hub
        hub.gone(self)
        if self._ticket is not None:
            hub.tickets.pop(self._ticket.number, None)
        hub.waits.discard(self)

    def _left(self) -> float:
        """The time left until the limit."""
        return float("inf") if self._end is None else max(0.0, self._end - now())

    async def _ask_once(self, has_ticket: bool) -> Any:
        hub, command = self.hub, self.command()
        if has_ticket:
            ticket = self._ticket = self._ticket or hub.new_ticket()
            hub.file(ticket)
            channel = await hub.subscribe(ticket, self.key)
            ticket.message = None
            ticket.event.clear()
            block = 0 if self._end is None else max(1, millis(self._left()))
            command = (*command, *self._terms.waits(block, channel, ticket.number))
        if self.limit and self._end is not None and not hub.is_cluster:
            # redis-py may repeat it for longer than the program waits. (In a cluster also after a redirection.)
            command[0].until = self._end
        sent = Moment()
        # Until the reply is handled: a signal handler may raise in between.
        was_there, self.may_be_there = self.may_be_there, True
        try:
            reply = await self.ask(command)
        except Error as error:
            self.may_be_there = self.may_be_there and was_there
            self._has_answer = self._has_answer or isinstance(error, Refused)
            if has_ticket and getattr(error, "code", None) == "NOSUBSCRIBER":
                hub.unsubscribed(channel)
            raise
        self._has_answer = True
        if reply not in _QUEUED:
            result = await self.granted(reply, sent)
            self.may_be_there = was_there or result is not None
            if result is None and has_ticket:
                raise bad_reply(hub.name)
            return result
        self._begun = self._warns_at = now()
        if not self._is_queued:
            self._is_queued = True
            hub.counts.waits += 1
            hub.waits.add(self)
        # The server ends the wait at its limit, and says so.
        await hub.wait(ticket.event, None if self._end is None else self._left() + hub.patience)
        hub.check_open()
        message = ticket.message
        if message is None:
            if self._left():
                return None
            silence = NoAnswer(hub.name)
            # A server that says nothing until after the limit is not asked again.
            silence.is_passing = ticket.event.is_set()
            raise silence
        if message[0] == b"timeout":
            self.may_be_there = False
            return None
        if message[0] == b"granted":
            return await self.confirm()
        raise refused(hub.name, message[1].decode("ascii", "replace"), "the wait was ended")

    def _passes(self, error: Error) -> bool:
        if self.limit == 0 or not error.is_passing:
            return False
        # The first request fails at once, in the words of the transport.
        if isinstance(error, Refused):
            return error.code != "READONLY" or self._is_queued
        return self._has_answer

    def _warn(self, error: Error) -> None:
        if now() - self._begun >= _WARNS_AFTER and now() >= self._warns_at:
            self._warns_at = now() + _WARNS_EVERY
            name = self.key.decode("utf-8", "replace")
            warn("the wait for %s goes on for %.0f s: %s", name, now() - self._begun, error)

    def command(self) -> Command:
        """The request, as it is sent without a ticket."""
        return self._claim.acquire()

    async def ask(self, command: Command) -> Any:
        """Sends the request."""
        was_unanswered, self.is_unanswered = self.is_unanswered, True
        if self._terms.is_session:
            reply = await self._ask_bound(command, was_unanswered)
            self.is_unanswered = was_unanswered
            return reply
        verb: Verb = command[0]
        try:
            reply = await self.hub.call(command, self.key)
        except Error as error:
            if verb.sends == 0 or (verb.sends == 1 and isinstance(error, Refused)):
                self.is_unanswered = was_unanswered
            raise
        # redis-py may have sent it twice: then it may be served twice.
        self.is_unanswered = was_unanswered or verb.sends != 1
        return reply

    async def _ask_bound(self, command: Command, was_unanswered: bool) -> Any:
        if self._link is None or not self._link.is_open:
            if was_unanswered and self._claim.is_fresh:
                # A request of before may be served late, and would bind the hold to a connection that has ended.
                self._end_claim()
                command = self.command()
            self._link = None
            self._link = await self.hub.open(self.key)
            self._link.on_end = self._wake
        try:
            return await self.hub.ask(self._link, command)
        except Refused as error:
            if error.code in ("MOVED", "ASK"):
                self._link.close()
                await self.hub.refresh()
            raise

    def _wake(self) -> None:
        if self._ticket is not None:
            self._ticket.event.set()

    async def granted(self, reply: Any, sent: Moment) -> Any:
        """The result of a reply; None when the request was not granted."""
        tokens = self._claim.granted(reply, self.hub.name)
        if tokens is None:
            return None
        lease: Optional[float] = self._terms.lease
        granted = sent.steady
        if self._terms.replicas is not None:
            try:
                sent = await replicated(self.hub, self._claim, tokens)
            except (NotReplicated, NotOwned) as error:
                # The lock is free when the program hears of it, if the server answers in time.
                ending = self._end_claim()
                await self.hub.wait(ending.event, self.hub.patience)
                # What was lost while other grants were checked is acquired anew.
                error.is_passing = isinstance(error, NotOwned) and ending.event.is_set()
                raise
        if self._link is not None:
            sent = Moment()
            found = await self.hub.ask(self._link, ("LOCK.INFO", self.key))
            lease = lock_info(found).remaining_of(self._claim.owner)
            if not self._link.is_open:
                raise ConnectionFailed(self.hub.name, "the connection has ended")
        if lease is None:
            raise bad_reply(self.hub.name)
        hold = self.hold = Hold(self.hub, self._claim, tokens, lease, sent, self._on_lost, self._link, granted)
        hold.is_unanswered = self.is_unanswered
        self.hub.add(hold)
        return hold

    async def confirm(self) -> Any:
        """The result after the message of a grant, which may be old or false; None when it does not hold."""
        result = await self._ask_once(False)
        if result is None and len(self._terms.keys) > 1:
            # One key was lost, and a wait holds none.
            self._end_claim()
        return result

    def give_up(self) -> None:
        """Ends what the request has at the server, or may get there yet. Called again, it does what is left."""
        self._leave()
        if self.hold is not None:
            self.hub.abandon(self.hold)
            return
        if self.is_unanswered or self.may_be_there:
            self._end_claim()
        if self._link is not None:
            self._link.close()

    def _end_claim(self) -> Ending:
        """Ends what this claim has; the next request has another one."""
        span = RELEASED_FOR if self._terms.is_session else max(self._terms.lease, self.hub.patience)
        ending = self.hub.end(Ending(self.hub, self._claim.give_up(), now() + span))
        self.is_unanswered = self.may_be_there = False
        self._claim = self._terms.claim(self.hub.owner())
        return ending


class LatchWait(Acquisition):
    """A wait until a latch is open."""

    is_counted = 0

    def _observed(self) -> Observed:
        return Observed(self._terms.names, "latch")

    def command(self) -> Command:
        return (Verb("LATCH.WAIT"), self.key)

    async def granted(self, reply: Any, sent: Moment) -> Any:
        return True if reply == 1 else None

    async def confirm(self) -> Any:
        return True

    def give_up(self) -> None:
        self._leave()
