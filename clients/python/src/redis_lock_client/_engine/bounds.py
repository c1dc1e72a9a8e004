"""A time limit for a coroutine.

``asyncio.wait_for`` of Python before 3.12 may return a result in place of a cancellation, and then the cancelled task
goes on: a wait that was withdrawn would send its next request. Here a cancellation is always raised, and the result
that it costs is handed to ``discard``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Callable, Optional, TypeVar

T = TypeVar("T")

#: When a task that has not ended is cancelled once more.
_AGAIN = 0.02


async def within(span: float, work: Coroutine[Any, Any, T], discard: Optional[Callable[[T], object]] = None) -> T:
    """The result of ``work``.

    :raises asyncio.TimeoutError: when it takes longer than ``span`` seconds; it is cancelled then.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, span))
    except asyncio.CancelledError:
        _drop(task, discard)
        raise
    if not done:
        _drop(task, discard)
        raise asyncio.TimeoutError
    return task.result()


def _drop(task: asyncio.Task[T], discard: Optional[Callable[[T], object]]) -> None:
    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None and discard is not None:
            discard(task.result())

    def cancel_again() -> None:
        if not task.done():
            task.cancel()

    task.cancel()
    # redis-py's login goes on after a cancellation that comes together with the end of its connection.
    asyncio.get_running_loop().call_later(_AGAIN, cancel_again)
    task.add_done_callback(ended)
