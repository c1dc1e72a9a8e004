"""Counts the forks of this process, for sockets that a child may have a copy of."""

from __future__ import annotations

import os
import threading


class Forks:
    """The forks that have begun, and those that have ended in this process."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        # Re-entrant: a signal handler may fork while its thread is in here.
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Before a fork."""
        with self._lock:
            self.begun += 1

    def end(self) -> None:
        """After a fork, in the parent."""
        with self._lock:
            self.ended += 1

    def begin_anew(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.RLock()
        self.ended = self.begun = 0


forks = Forks()
os.register_at_fork(before=forks.begin, after_in_parent=forks.end, after_in_child=forks.begin_anew)
