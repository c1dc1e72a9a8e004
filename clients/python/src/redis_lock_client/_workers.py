"""The threads that look up host names, and ask credential providers that may block.

Those of ``concurrent.futures`` take no work once the main thread has ended, while other threads of the program may go
on for hours, and they delay the end of the interpreter until the last look-up has ended.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from typing import Any, Callable

#: Look-ups at a time: one that hangs is given up by its caller, and occupies its thread until it ends.
_MOST = 16

_Job = Callable[[], None]


class Workers(concurrent.futures.ThreadPoolExecutor):
    """An executor (of the class that an event loop accepts) whose threads are daemons and end when there is no work."""

    def __init__(self) -> None:
        super().__init__(1)
        self._guard = threading.Lock()
        self._jobs: deque[_Job] = deque()
        self._running = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._guard:
            self._jobs.append(job)
            if self._running == _MOST:
                return future
            self._running += 1
        try:
            threading.Thread(target=self._work, name="redis-lock-names", daemon=True).start()
        except RuntimeError:
            # The interpreter ends, or the process has too many threads.
            with self._guard:
                self._running -= 1
                self._jobs.remove(job)
            raise
        return future

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            job()
