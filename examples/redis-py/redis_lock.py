"""Locks of the redis-lock module for redis-py. Times are in milliseconds."""

import time

import redis

SLICE = 2_000  # what one request waits: well below the socket timeout


class Locks:
    def __init__(self, **where):
        # Without retry=None, what is not answered within 5 s is sent eleven times.
        self.redis = redis.Redis(socket_timeout=5, retry=None, **where)

    def acquire(self, key, owner, wait, lease):
        """The fencing token, or None when it was not granted in time."""
        until = time.monotonic() + wait / 1000
        while True:
            left = int((until - time.monotonic()) * 1000)
            words = key, owner, "PX", lease, "BLOCK", max(1, min(SLICE, left)), "ONCE"
            try:
                token = self.redis.execute_command("LOCK.ACQUIRE", *words)
                if token is not None or time.monotonic() >= until:
                    return token
            except (redis.ConnectionError, redis.TimeoutError):
                if time.monotonic() >= until:
                    raise
                time.sleep(0.05)  # then again: ONCE makes that safe

    def renew(self, key, owner, token, lease):  # False: it is lost, stop working
        return self._twice("LOCK.RENEW", key, owner, "PX", lease, "TOKEN", token)

    def release(self, key, owner, token):  # False: it was not held any more
        return self._twice("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token)

    def _twice(self, *command):  # the token in it makes that safe
        try:
            return self.redis.execute_command(*command) == 1
        except (redis.ConnectionError, redis.TimeoutError):
            return self.redis.execute_command(*command) == 1
