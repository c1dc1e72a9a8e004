"""The open tickets and their lines: what follows from a reply, a message, and the end of a subscription.

No connections here: the desk carries out what the table answers. A message that comes before the reply ends the ticket
if it is a grant; any other one is kept until the reply is read.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from .channel import Channel, Live
from .ticket import (
    Announced,
    Answer,
    Ask,
    Beat,
    Busy,
    Close,
    Done,
    Failed,
    FailedBy,
    Granted,
    Later,
    Line,
    Message,
    NoSubscriber,
    Outcome,
    Park,
    PauseUntil,
    Probe,
    Queued,
    Rest,
    State,
    Step,
    Ticket,
    TimedOut,
    Unsupported,
)

#: Subscriptions in a row after which the node still asks for one.
_MAX_SUBSCRIPTIONS = 3
#: How long waits park after that.
_PARKING_SPAN = 30.0
#: Time without a ticket after which a line ends its subscription.
MAX_IDLE = 30.0
#: Codes of messages after which the same request may be served later, or by another node.
_PASSING = frozenset({"UNBLOCKED", "DRAINED", "MOVED", "CLUSTERDOWN"})


class Table:
    """The tickets of a server. The evidence that a node takes no tickets is the desk's, and opaque here."""

    def __init__(self) -> None:
        self._last_id = 0
        self._tickets: dict[int, Ticket] = {}
        self._channels: dict[Line, Channel] = {}

    def file(
        self,
        line: Line,
        request: Any,
        deliver: Callable[[Outcome], None],
        name: Callable[[], bytes],
        now: float,
    ) -> int:
        """Files a ticket, which is due, and returns its number. ``name`` makes the name of a new channel."""
        self._last_id += 1
        number = self._last_id
        channel = self._channels.get(line)
        if channel is None:
            channel = self._channels[line] = Channel(name(), now)
        channel.tickets[number] = None
        channel.due.add(number)
        self._tickets[number] = Ticket(line, request, deliver)
        return number

    def ask_again(self, number: int) -> None:
        """Asks again for a queued ticket, or for one that is over: it keeps its number and so its place."""
        ticket = self._tickets.get(number)
        if ticket is not None and ticket.state in (State.OVER, State.QUEUED):
            self._make_due(number)

    def remove(self, number: int, now: float) -> None:
        """Removes a ticket whose wait is over."""
        ticket = self._tickets.pop(number, None)
        channel = None if ticket is None else self._channels.get(ticket.line)
        if ticket is not None and channel is not None:
            channel.tickets.pop(number, None)
            channel.due.discard(number)
            channel.used = now
            self._drop_unused(ticket.line)

    def is_queued(self, number: int) -> bool:
        """Whether the server has queued the ticket."""
        ticket = self._tickets.get(number)
        return ticket is not None and ticket.state is State.QUEUED

    def may_be_there(self, number: int) -> bool:
        """Whether the server may have the ticket in a queue, or may have granted it."""
        ticket = self._tickets.get(number)
        return ticket is not None and ticket.is_there

    def open(self, number: int) -> Optional[tuple[Any, bytes]]:
        """The request and the channel of a ticket that the server may have, or may get."""
        ticket = self._tickets.get(number)
        channel = None if ticket is None else self._channels.get(ticket.line)
        if ticket is None or channel is None or not (ticket.is_there or ticket.in_flight):
            return None
        return ticket.request, channel.name

    def under_way_until(self, number: int, unread_until: float) -> Optional[float]:
        """The time until which a request without a reply may still be served; ``unread_until`` for one under way."""
        ticket = self._tickets.get(number)
        if ticket is None:
            return None
        if ticket.in_flight:
            return max(unread_until, ticket.unanswered_until or unread_until)
        return ticket.unanswered_until

    def parking(self, line: Line, now: float) -> Optional[Any]:
        """The evidence for parking at this line, unless it is over."""
        channel = self._channels.get(line)
        if channel is None or channel.parking is None:
            return None
        evidence, end = channel.parking
        if end is not None and now >= end:
            channel.parking = None
            return None
        return evidence

    def end_parking(self, line: Line) -> None:
        """The evidence is void."""
        channel = self._channels.get(line)
        if channel is not None:
            channel.parking = None
            channel.subscriptions = 0
        self._drop_unused(line)

    def begin_work(self, line: Line) -> bool:
        """Whether a request of the line is due and has no worker: then the caller starts it."""
        channel = self._channels.get(line)
        if channel is None or channel.due.first() is None or channel.has_worker:
            return False
        channel.has_worker = True
        return True

    def is_alone(self, line: Line) -> bool:
        """Whether a request of the line is to be the only one until its reply."""
        channel = self._channels.get(line)
        return channel is None or channel.is_alone

    def next(self, line: Line, now: float) -> Step:
        """The next step of the line's worker."""
        channel = self._channels.get(line)
        if channel is None:
            return Done()
        number = channel.due.first()
        if number is None:
            channel.has_worker = False
            self._drop_unused(line)
            return Done()
        if channel.not_before is not None and now < channel.not_before:
            return PauseUntil(channel.not_before)
        channel.due.discard(number)
        ticket = self._tickets[number]
        ticket.state = State.ASKING
        ticket.in_flight += 1
        return Ask(number, line, ticket.request, channel.name, channel.is_alone, channel.epoch)

    def answered(self, ask: Ask, answer: Answer, now: float) -> bool:
        """Handles the reply to a request. True: the line needs a subscription at the node that replied."""
        channel = self._channels.get(ask.line)
        if channel is None:
            return False
        was_draining = channel.is_draining
        channel.answered(answer, ask.epoch, now)
        wants_subscription = False
        if channel.epoch == ask.epoch and isinstance(answer, NoSubscriber):
            wants_subscription = channel.live is None
            if not wants_subscription:
                self._unsubscribed(ask.line)
        ticket = self._tickets.get(ask.id)
        if ticket is None:
            return wants_subscription
        ticket.in_flight = max(0, ticket.in_flight - 1)
        is_grant = isinstance(answer, Granted)
        if ticket.state is State.OVER or (ticket.state is not State.ASKING and not is_grant):
            # Over by a message; or asked again since, and the newer reply decides.
            return wants_subscription
        early, ticket.early = ticket.early, None
        if isinstance(answer, (Granted, Failed)):
            self._end(ask.id, answer)
        elif isinstance(answer, Unsupported) or (isinstance(answer, Busy) and not was_draining):
            self._end(ask.id, Park())
        elif isinstance(answer, Queued):
            ticket.is_there = True
            wants_subscription = self._queued(ask, answer.node)
        else:
            if isinstance(answer, Later) and answer.unanswered_until is not None:
                ticket.unanswered_until = max(answer.unanswered_until, ticket.unanswered_until or 0.0)
                ticket.is_there = True
            self._make_due(ask.id)
        if early is not None:
            self.message(ask.id, early, now)
        return wants_subscription

    def _queued(self, ask: Ask, node: str) -> bool:
        """The ticket is queued, if its message will be received. True: the line needs a subscription first."""
        channel = self._channels[ask.line]
        if channel.epoch == ask.epoch and channel.live is not None and channel.live.node == node:
            self._tickets[ask.id].state = State.QUEUED
            return False
        # The subscription is another one by now; or the server does not check for subscribers (`PUBSUB` renamed).
        wants_subscription = channel.epoch == ask.epoch
        self._make_due(ask.id)
        return wants_subscription

    def may_subscribe(self, line: Line) -> bool:
        """Whether another subscription may help. If not, the waits of the line park."""
        channel = self._channels.get(line)
        return channel is not None and channel.subscriptions < _MAX_SUBSCRIPTIONS

    def subscribed(self, line: Line, node: str, number: int) -> None:
        """The channel is subscribed at this node through this connection."""
        channel = self._channels.get(line)
        if channel is None:
            return
        channel.live = Live(node, number)
        channel.epoch += 1
        channel.subscriptions += 1
        # What another node has queued would send its messages there.
        self._queued_are_due(line)

    def not_subscribed(self, line: Line, was_reached: bool, now: float) -> None:
        """The node has not confirmed the subscription, or could not be reached for it."""
        channel = self._channels.get(line)
        if channel is not None:
            channel.subscriptions += was_reached
            channel.fail(now)

    def park(self, line: Line, evidence: Any, is_for_a_while: bool, now: float) -> None:
        """The node takes no tickets: the waits of the line park, for a while or until the evidence is void."""
        channel = self._channels.get(line)
        if channel is None:
            return
        channel.parking = (evidence, now + _PARKING_SPAN if is_for_a_while else None)
        channel.subscriptions = 0
        for number in channel.due.drain():
            self._end(number, Park())

    def closed(self, number: int) -> list[Line]:
        """A connection has ended: the lines that are due."""
        lines = [line for line, channel in self._channels.items() if channel.is_on(number)]
        for line in lines:
            self._unsubscribed(line)
        return lines

    def channel_ended(self, number: int, name: bytes) -> list[Line]:
        """The server has ended the subscription of this channel: the line that is due."""
        lines = [line for line, channel in self._channels.items() if channel.name == name and channel.is_on(number)]
        for line in lines:
            self._unsubscribed(line)
        return lines

    def _unsubscribed(self, line: Line) -> None:
        channel = self._channels.get(line)
        if channel is not None:
            channel.live = None
            channel.epoch += 1
        self._queued_are_due(line)
        self._drop_unused(line)

    def message(self, number: int, message: Message, now: float) -> Optional[tuple[Line]]:
        """Handles a message and returns its line, which may be due."""
        ticket = self._tickets.get(number)
        if ticket is None:
            return None
        if ticket.state is State.OVER:
            pass
        elif message.word == "granted":
            self._end(number, Announced())
        elif ticket.state is State.ASKING:
            # It may be about the request before this one.
            ticket.early = message
        elif message.word == "timeout":
            ticket.is_there = False
            self._end(number, TimedOut())
        else:
            ticket.is_there = False
            if message.code in _PASSING:
                channel = self._channels[ticket.line]
                channel.is_draining |= message.code == "DRAINED"
                channel.fail(now)
                self._make_due(number)
            else:
                self._end(number, FailedBy(message.code))
        return (ticket.line,)

    def beat(self, number: int, now: float) -> Beat:
        """What the keeper of this connection does next."""
        used: Optional[bytes] = None
        unused: list[tuple[Line, bytes]] = []
        is_resting = False
        for line, channel in self._channels.items():
            if not channel.is_on(number):
                continue
            if channel.tickets:
                used = channel.name
            elif now - channel.used >= MAX_IDLE:
                unused.append((line, channel.name))
            else:
                is_resting = True
        if used is None:
            return Rest() if is_resting else Close()
        for line, _ in unused:
            self._unsubscribed(line)
        return Probe(used, [name for _, name in unused])

    @property
    def has_tickets(self) -> bool:
        """Whether a ticket is filed."""
        return bool(self._tickets)

    def _queued_are_due(self, line: Line) -> None:
        channel = self._channels.get(line)
        if channel is None:
            return
        for number in channel.tickets:
            ticket = self._tickets[number]
            if ticket.state is State.QUEUED:
                ticket.state = State.DUE
                channel.due.add(number)

    def _make_due(self, number: int) -> None:
        ticket = self._tickets[number]
        channel = self._channels.get(ticket.line)
        if channel is not None:
            ticket.state = State.DUE
            channel.due.add(number)

    def _end(self, number: int, outcome: Outcome) -> None:
        ticket = self._tickets.get(number)
        if ticket is None:
            return
        ticket.state = State.OVER
        ticket.is_there |= isinstance(outcome, (Granted, Announced))
        channel = self._channels.get(ticket.line)
        if channel is not None:
            channel.due.discard(number)
        ticket.deliver(outcome)

    def _drop_unused(self, line: Line) -> None:
        """Forgets a line that has neither tickets nor a subscription, and no evidence to remember."""
        channel = self._channels.get(line)
        if channel is not None and not (
            channel.tickets or channel.has_worker or channel.live is not None or channel.parking is not None
        ):
            del self._channels[line]
