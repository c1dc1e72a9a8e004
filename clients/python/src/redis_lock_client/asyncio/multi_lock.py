"""A lock of several keys, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from .._base import BaseMultiLock
from .._options import Number
from .._terms import Text
from .lock import TaskLock

if TYPE_CHECKING:
    from .._options import AsyncioClient
    from .server import Server


class MultiLock(TaskLock, BaseMultiLock[Union["AsyncioClient", "Server"]]):
    """Several keys that are locked together or not at all: :class:`redis_lock_client.MultiLock`, with the same
    parameters, whose methods are coroutines. ``on_lost`` may be a coroutine function."""

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires all keys; False when another owner holds one of them until the end of the wait."""
        return await self._acquire(blocking, blocking_timeout, token)
