"""The modes of a lock, and the ways in which a hold ends."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Optional


class Mode(enum.Enum):
    """How a lock is held. READ holds exclude WRITE holds; an EXCLUSIVE lock is a key of its own kind."""

    EXCLUSIVE = "exclusive"
    READ = "read"
    WRITE = "write"


class Released(enum.Enum):
    """The result of a release."""

    #: The lock was still held, and is now free or granted to the next waiter.
    YES = "yes"
    #: The lock was no longer held by this holder.
    NOT_HELD = "not held"


@dataclass(frozen=True)
class LostReason:
    """Why a lock is no longer held. Compare it with the constants, or read ``kind``."""

    #: ``"taken"``, ``"unconfirmed"``, ``"refused"`` or ``"disconnected"``.
    kind: str
    #: The first word of the server's error, of a refused renewal.
    code: Optional[str] = None
    #: The rest of it.
    text: Optional[str] = None

    #: The server reports that this grant is over: it was broken or deleted, its lease ran out, or the data is lost.
    TAKEN: ClassVar[LostReason]
    #: No renewal was confirmed until the margin before the end of the lease; or a lease that is not renewed is ending.
    #: Until the end of the lease this holder still has the lock.
    UNCONFIRMED: ClassVar[LostReason]
    #: The connection to which the hold was bound (``session=True``) has ended.
    DISCONNECTED: ClassVar[LostReason]

    @staticmethod
    def refused(code: str, text: str) -> LostReason:
        """The server refuses a renewal: the key holds other data (``WRONGTYPE``, ``LOCKTYPE``), the user lacks the
        permission (``NOPERM``, ``NOAUTH``, ``WRONGPASS``), or the only known server is a replica (``READONLY``)."""
        return LostReason("refused", code, text)

    def __str__(self) -> str:
        why = {
            "taken": "the server says that the grant is over",
            "unconfirmed": "its lease is about to end, and no renewal was confirmed",
            "disconnected": "the connection to which it was bound has ended",
        }
        return f"the lock was lost: {why.get(self.kind, f'the server does not renew it: {self.code} {self.text}')}"


LostReason.TAKEN = LostReason("taken")
LostReason.UNCONFIRMED = LostReason("unconfirmed")
LostReason.DISCONNECTED = LostReason("disconnected")
