"""Grants that replicas have: a renewal and ``WAIT``, on one connection to each node, beside the other requests.

``WAIT`` counts the replicas that have all writes of its connection, so the renewal goes before it, which also proves
that the hold lasts.
"""

from __future__ import annotations

from typing import Any, Optional

from ._hold import Moment
from ._hub import Hub
from ._link import Link
from ._requests import verdict
from ._terms import Command, Terms, Tokens, millis
from .errors import Error, NoAnswer, NotOwned, NotReplicated, Refused, bad_reply


class _Check:
    """A grant, and what is known of it: a reply for each renewal, and the number of replicas."""

    count: Any = None

    def __init__(self, hub: Hub, claim: Terms, tokens: Tokens) -> None:
        self.commands: list[Command] = claim.renew(claim.lease, tokens)
        self.replicas, self.within = claim.replicas or 0, claim.within
        self.replies: list[Any] = []
        self.event = hub.new_event()

    def renewed(self, reply: Any) -> None:
        """The reply to a renewal. What is not held here any more needs no replicas: the slot has moved, perhaps."""
        self.replies.append(reply)
        if len(self.replies) == len(self.commands) and verdict(self.replies) is not True:
            self.event.set()


class Checks:
    """The grants at one node. Those that come while ``WAIT`` is under way go together into the next one."""

    _link: Optional[Link] = None
    _is_over = False
    #: How long the present ``WAIT`` may last.
    _within = 0.0

    def __init__(self, hub: Hub, node: Any) -> None:
        self._hub = hub
        self._node = node
        self._next: list[_Check] = []
        self._sent: list[_Check] = []

    @property
    def is_open(self) -> bool:
        """Whether grants can be added: the connection is open, or is being opened."""
        return not self._is_over and (self._link is None or self._link.is_open)

    def add(self, check: _Check) -> None:
        """Adds a grant."""
        self._next.append(check)
        if self._link is not None and not self._sent:
            self._send()

    async def open(self, key: bytes) -> None:
        """Opens the connection. In the background, as an acquisition that ends meanwhile ends no other."""
        hub = self._hub
        try:
            link = await hub.open(key)
            with hub.guard:
                self._link = hub.links["replicas", self._node] = link
                if self._is_over:
                    link.close()
                elif self._next:
                    self._send()
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    async def wait(self, check: _Check) -> None:
        """Waits for the answer to a grant that was added."""
        hub = self._hub
        # The one before may take its time, and so may the connection.
        before = 0.0 if check in self._sent else hub.patience + self._within
        await hub.wait(check.event, before + check.within + hub.patience)
        if not check.event.is_set():
            self.end()

    def _send(self) -> None:
        link: Any = self._link
        self._sent, self._next = self._next, []
        self._within = max(check.within for check in self._sent)
        for check in self._sent:
            check.within = self._within
            for command in check.commands:
                link.post_in_background(command, check.renewed)
        most = max(check.replicas for check in self._sent)
        link.post_in_background(("WAIT", most, max(1, millis(self._within))), self._done)

    def _done(self, count: Any) -> None:
        sent, self._sent = self._sent, []
        for check in sent:
            check.count = count
            check.event.set()
        if self._next:
            self._send()

    def end(self, error: Optional[BaseException] = None) -> None:
        """Gives the connection up: the grants that wait for it have no answer, or this one."""
        with self._hub.guard:
            self._is_over = True
            if self._link is not None:
                self._link.close()
            rest, self._next = self._next, []
            for check in rest:
                check.count = error
                check.event.set()


async def replicated(hub: Hub, claim: Terms, tokens: Tokens) -> Moment:
    """Begins the lease of a grant anew, and waits until its replicas have it; the moment before that.

    :raises NotReplicated: when fewer have it in time.
    :raises NotOwned: when the hold was lost meanwhile.
    """
    try:
        for attempt in range(2):
            node, _ = await hub.node(claim.key)
            sent, check = Moment(), _Check(hub, claim, tokens)
            with hub.guard:
                hub.check_open()
                former: Optional[Checks] = hub.checks.get(node)
                checks = former if former is not None and former.is_open else Checks(hub, node)
                hub.checks[node] = checks
                checks.add(check)
            if checks is not former:
                hub.start(checks.open(claim.key))
            await checks.wait(check)
            hub.check_open()
            if not any(isinstance(one, Refused) and one.code in ("MOVED", "ASK") for one in check.replies) or attempt:
                break
            await hub.refresh()
        held = verdict(check.replies) if len(check.replies) == len(check.commands) else NoAnswer(hub.name)
        for error in (check.count, held):
            if isinstance(error, Refused) and error.code == "UNBLOCKED":
                # The server has become a replica.
                raise NoAnswer(hub.name, "the wait for the replicas was ended by the server")
            if isinstance(error, Error):
                raise error
    except Error as error:
        # It is given up, and not asked for again.
        error.is_passing = False
        raise
    if not held or sent.elapsed() >= claim.certain(claim.lease):
        # The lease may be over although the renewal began it anew: `WAIT` takes its time.
        raise NotOwned("the lock was lost before the replicas had it", claim.key)
    if not isinstance(check.count, int):
        raise bad_reply(hub.name)
    if check.count < check.replicas:
        raise NotReplicated(check.replicas, check.count, check.within, claim.key)
    return sent
