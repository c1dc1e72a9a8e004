"""The notice of a loss, from the timer to the holder. It is given once; after a release there is none."""

from __future__ import annotations

import threading
from typing import Callable, Optional

from .outcome import LostReason


class Notice:
    """The state of a hold that its holder waits for: lost, or released. Read by any thread, changed by the hub's."""

    __slots__ = ("_callbacks", "_lock", "is_over", "reason")

    def __init__(self) -> None:
        self.reason: Optional[LostReason] = None
        #: Whether the hold is released.
        self.is_over = False
        # Re-entrant: a signal handler may read the notice while its thread is in here.
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def has_listeners(self) -> bool:
        """Whether anything waits for the end of the hold."""
        return bool(self._callbacks)

    def lose(self, reason: LostReason) -> bool:
        """Reports the loss. False when one was reported before, or the hold is released."""
        with self._lock:
            if self.is_over or self.reason is not None:
                return False
            self.reason = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    def finish(self) -> None:
        """The hold is released: no loss is reported any more."""
        with self._lock:
            self.is_over = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls this function when the hold is lost or released; at once if it is."""
        with self._lock:
            if not self.is_over and self.reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Removes a function that is no longer to be called."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class LostState:
    """The loss of a lock, if there was one."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice

    @property
    def reason(self) -> Optional[LostReason]:
        """The reason of the loss, if the lock was lost."""
        return self._notice.reason

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._notice.reason is not None
