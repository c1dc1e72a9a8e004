"""The module's commands, as requests of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ..errors import bad_reply
from ..outcome import Mode, Released
from .resp import Status, Word

Command = tuple[Word, ...]
#: The tokens of a grant, one for each key.
Tokens = tuple[int, ...]


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
    """The keys, owner and kind of a hold, which every command names. In a cluster the keys are in one slot."""

    keys: tuple[bytes, ...]
    owner: bytes
    kind: Kind

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Claim({', '.join(map(repr, self.keys))})"

    @property
    def key(self) -> bytes:
        """The first key, whose slot is that of all."""
        return self.keys[0]

    @property
    def is_multi(self) -> bool:
        """Whether the claim is for several keys."""
        return len(self.keys) > 1

    def each(self) -> list[Claim]:
        """The claim for each key alone."""
        return [Claim((key,), self.owner, self.kind) for key in self.keys]


def _start(claim: Claim, verb: bytes, has_mode: bool = True) -> Command:
    if claim.kind.is_permit:
        return (b"SEM." + verb, claim.key, claim.owner)
    word = claim.kind.mode.word
    mode = () if word is None or not has_mode else (word,)
    if claim.is_multi:
        return (b"LOCK.M" + verb, len(claim.keys), *claim.keys, claim.owner, *mode)
    return (b"LOCK." + verb, claim.key, claim.owner, *mode)


def millis(span: float) -> int:
    """Whole milliseconds, cut: the client must not count on a longer lease than the server's. A thousandth is
    added before, because 0.29 * 1000 is below 290."""
    return int(span * 1000 + 0.001)


def acquire(claim: Claim, lease: float) -> Command:
    """``LOCK.ACQUIRE``, ``LOCK.MACQUIRE`` or ``SEM.ACQUIRE``: the tokens, or nil. Sent twice, it is granted once."""
    command = (*_start(claim, b"ACQUIRE"), b"PX", millis(lease))
    if not claim.kind.is_permit:
        return (*command, b"ONCE")
    # A repeated request of one owner for a permit always gets the reply of the first.
    return command if claim.kind.limit is None else (*command, b"LIMIT", claim.kind.limit)


def acquire_bound(claim: Claim) -> Command:
    """``LOCK.ACQUIRE ... SESSION``: the hold is bound to the connection of the request."""
    return (*_start(claim, b"ACQUIRE"), b"SESSION", b"ONCE")


def parked(command: Command, block: float) -> Command:
    """The same request, parked in the server for at most ``block`` seconds."""
    return (*command, b"BLOCK", max(1, millis(block)))


def notified(command: Command, block: float, channel: bytes, number: int) -> Command:
    """The same request as a ticket with this number, which the server keeps for at most ``block`` seconds."""
    return (*command, b"BLOCK", max(1, millis(block)), b"NOTIFY", channel, number)


def renew(claim: Claim, lease: float, tokens: Optional[Tokens]) -> Command:
    """``LOCK.RENEW``, ``LOCK.MRENEW`` or ``SEM.RENEW``: the number of keys that are still held, under this token if
    there is one key. Without tokens: by the owner alone, for a hold that another object took."""
    command = (*_start(claim, b"RENEW", not claim.is_multi), b"PX", max(1, millis(lease)))
    return _with_token(command, claim, tokens)


def renew_bound(claim: Claim, tokens: Tokens) -> Command:
    """``LOCK.RENEW`` with the lease of the server, which leaves the hold bound to its connection."""
    return _with_token(_start(claim, b"RENEW"), claim, tokens)


def release(claim: Claim, tokens: Optional[Tokens]) -> Command:
    """``LOCK.RELEASE ... ALL``, ``LOCK.MRELEASE ... ALL`` or ``SEM.RELEASE``, see :func:`released`. Without a token it
    also withdraws a wait; that of several keys has none."""
    command = _start(claim, b"RELEASE", not claim.is_multi)
    if not claim.kind.is_permit:
        command = (*command, b"ALL")
    return _with_token(command, claim, tokens)


def _with_token(command: Command, claim: Claim, tokens: Optional[Tokens]) -> Command:
    # A permit needs no token: its owner holds at most one.
    if tokens is None or claim.kind.is_permit or claim.is_multi:
        return command
    return (*command, b"TOKEN", tokens[0])


def granted(reply: Any, server: str, keys: int = 1) -> Optional[Tokens]:
    """The reply to an acquire: a token for each key, or nil. For ``LATCH.WAIT``: 1 or 0, which is not a token."""
    if reply is None or reply == 0:
        return None
    tokens = tuple(reply) if isinstance(reply, list) and keys > 1 else (reply,)
    if len(tokens) == keys and all(isinstance(token, int) for token in tokens):
        return tokens
    raise bad_reply(server)


def ticket(reply: Any, server: str, keys: int = 1) -> Optional[Tokens]:
    """The reply to a ticket's request: the tokens of an immediate grant, or None when it is queued."""
    if isinstance(reply, Status) and reply == "QUEUED":
        return None
    tokens = granted(reply, server, keys)
    if tokens is None:
        # Not the reply of a server that knows tickets.
        raise bad_reply(server)
    return tokens


def released(reply: Any, server: str, claim: Claim, may_be_repeated: bool) -> Released:
    """The reply to a release: of one key nil when the owner does not hold it (under this token), of several the number
    of keys that it held. After an earlier request without a reply, nothing held may mean that it was served."""
    if reply is not None and not isinstance(reply, int):
        raise bad_reply(server)
    number = (reply or 0) if claim.is_multi else int(reply is not None)
    is_held = number == len(claim.keys) or (number == 0 and may_be_repeated)
    return Released.YES if is_held else Released.NOT_HELD
