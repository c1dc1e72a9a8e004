"""A client of redis-py whose ``lock()`` makes locks of the module, for libraries that call it without a class."""

from __future__ import annotations

from typing import Any

import redis.asyncio

from .lock import Lock


class Redis(redis.asyncio.Redis):
    """``redis.asyncio.Redis``, with :class:`Lock` as the default class of :meth:`lock`."""

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """``redis.asyncio.Redis.lock``."""
        # The class is the seventh parameter.
        if len(args) < 6 and kwargs.get("lock_class") is None:
            kwargs["lock_class"] = Lock
        return super().lock(*args, **kwargs)
