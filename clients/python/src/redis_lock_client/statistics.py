"""Counters and gauges of this process's use of a server's locks, for a metrics library."""

from __future__ import annotations

from dataclasses import dataclass, fields

_GAUGES = frozenset({"holds", "waiting"})


@dataclass
class Statistics:
    """The counters of this process for the locks of a server, and its present numbers of holds and waits."""

    #: Acquisitions that were granted.
    acquisitions: int = 0
    #: Acquisitions that ended without the lock, because another owner held it or waited for it.
    acquisitions_refused: int = 0
    #: Acquisitions that ended with an error, also ``Refused``. (Cancelled ones are not counted.)
    acquisitions_failed: int = 0
    #: Acquisitions that waited in the server's queue.
    waits: int = 0
    #: Renewals that the server confirmed.
    renewals: int = 0
    #: Attempted renewals that were not confirmed. A failed one is repeated until the lock is lost.
    renewals_failed: int = 0
    #: Losses that were reported.
    losses: int = 0
    #: Releases that the server answered, including the answer that the lock was no longer held.
    releases: int = 0
    #: Releases, and withdrawals of waits, that were given up without a reply: a hold ends with its lease.
    releases_failed: int = 0
    #: Opened connections of this package: for the messages that end waits, and those of sessions.
    connections: int = 0
    #: Holds that are not released, including those whose lock is lost.
    holds: int = 0
    #: Acquisitions that wait in the server's queue.
    waiting: int = 0

    def counters(self) -> dict[str, int]:
        """The numbers that only grow, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _GAUGES}

    def gauges(self) -> dict[str, int]:
        """The present numbers, by name."""
        return {name: getattr(self, name) for name in sorted(_GAUGES)}
