"""The module's commands, as requests of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ..errors import bad_reply
from ..outcome import Mode
from .resp import Status, Word

Command = tuple[Word, ...]


@dataclass(frozen=True)
class Kind:
    """The kind of a hold: a lock in a mode, or a permit of a semaphore."""

    mode: Mode = Mode.EXCLUSIVE
    is_permit: bool = False
    #: The number of permits with which an acquisition creates a missing semaphore.
    limit: Optional[int] = None

    @property
    def word(self) -> bytes:
        """Distinguishes the holds that one owner may have on one key."""
        return b"PERMIT" if self.is_permit else self.mode.word or b""


@dataclass(frozen=True)
class Claim:
    """The key, owner and kind of a hold, which every command names."""

    key: bytes
    owner: bytes
    kind: Kind

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Claim({self.key!r})"


def _start(claim: Claim, of_lock: bytes, of_permit: bytes) -> Command:
    if claim.kind.is_permit:
        return (of_permit, claim.key, claim.owner)
    word = claim.kind.mode.word
    return (of_lock, claim.key, claim.owner) if word is None else (of_lock, claim.key, claim.owner, word)


def millis(span: float) -> int:
    """Whole milliseconds, cut: the client must not count on a longer lease than the server's. A thousandth is
    added before, because 0.29 * 1000 is below 290."""
    return int(span * 1000 + 0.001)


def acquire(claim: Claim, lease: float) -> Command:
    """``LOCK.ACQUIRE`` or ``SEM.ACQUIRE``: a token, or nil. Sent twice, it is granted once."""
    command = (*_start(claim, b"LOCK.ACQUIRE", b"SEM.ACQUIRE"), b"PX", millis(lease))
    if not claim.kind.is_permit:
        return (*command, b"ONCE")
    # A repeated request of one owner for a permit always gets the reply of the first.
    return command if claim.kind.limit is None else (*command, b"LIMIT", claim.kind.limit)


def parked(command: Command, block: float) -> Command:
    """The same request, parked in the server for at most ``block`` seconds."""
    return (*command, b"BLOCK", max(1, millis(block)))


def notified(command: Command, block: float, channel: bytes, number: int) -> Command:
    """The same request as a ticket with this number, which the server keeps for at most ``block`` seconds."""
    return (*command, b"BLOCK", max(1, millis(block)), b"NOTIFY", channel, number)


def renew(claim: Claim, lease: float, token: int) -> Command:
    """``LOCK.RENEW`` or ``SEM.RENEW``: 1, or 0 when that grant is over."""
    return _with_token((*_start(claim, b"LOCK.RENEW", b"SEM.RENEW"), b"PX", max(1, millis(lease))), claim, token)


def renew_by_owner(claim: Claim, lease: float) -> Command:
    """The same without a token, for a hold that another object took."""
    return (*_start(claim, b"LOCK.RENEW", b"SEM.RENEW"), b"PX", max(1, millis(lease)))


def release(claim: Claim, token: Optional[int]) -> Command:
    """``LOCK.RELEASE ... ALL`` or ``SEM.RELEASE``: nil when the owner does not hold the key, or holds it under another
    token. Without a token it also withdraws a wait."""
    command = _start(claim, b"LOCK.RELEASE", b"SEM.RELEASE")
    if not claim.kind.is_permit:
        command = (*command, b"ALL")
    return command if token is None else _with_token(command, claim, token)


def _with_token(command: Command, claim: Claim, token: int) -> Command:
    # A permit needs no token: its owner holds at most one.
    return command if claim.kind.is_permit else (*command, b"TOKEN", token)


def granted(reply: Any, server: str) -> Optional[int]:
    """The reply to an acquire: a token, or nil. For ``LATCH.WAIT``: 1 or 0, which is not a token."""
    if reply is None or reply == 0:
        return None
    if isinstance(reply, int):
        return reply
    raise bad_reply(server)


def ticket(reply: Any, server: str) -> Optional[int]:
    """The reply to a ticket's request: the token of an immediate grant, or None when it is queued."""
    if isinstance(reply, Status) and reply == "QUEUED":
        return None
    if isinstance(reply, int) and reply != 0:
        return reply
    # Not the reply of a server that knows tickets.
    raise bad_reply(server)
