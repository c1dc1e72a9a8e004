"""A client of redis-py whose ``lock()`` makes locks of the module, for libraries that call it without a class."""

from __future__ import annotations

from typing import Any

import redis

from .lock import Lock


class Redis(redis.Redis):
    """``redis.Redis``, with :class:`Lock` as the default class of :meth:`lock`.

    django-redis: ``OPTIONS = {"REDIS_CLIENT_CLASS": "redis_lock_client.Redis"}``. celery-redbeat:
    ``app.redbeat_redis = redis_lock_client.Redis.from_url(url, decode_responses=True)``.
    """

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """``redis.Redis.lock``."""
        # The class is the seventh parameter.
        if len(args) < 6 and kwargs.get("lock_class") is None:
            kwargs["lock_class"] = Lock
        return super().lock(*args, **kwargs)
