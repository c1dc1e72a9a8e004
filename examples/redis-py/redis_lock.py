"""Locks of the redis-lock module for redis-py. Times are in milliseconds."""

import itertools
import time

import redis

NUMBERS = itertools.count(time.time_ns() // 1000)  # of acquisitions: they rise, over a restart too


class Locks:
    def __init__(self, **where):
        # By default, what is not answered within 5 s is sent eleven times.
        self.waiting = redis.Redis(socket_timeout=5, retry=None, **where)
        self.others = redis.Redis(socket_timeout=5, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 1), **where)

    def acquire(self, key, owner, wait, lease):  # the fencing token, or None when it was not granted in time
        until, number, lost = time.monotonic() + wait / 1000, next(NUMBERS), 0
        try:
            while True:
                left, lost = int((until - time.monotonic()) * 1000), lost + 1
                words = key, owner, "PX", lease, "BLOCK", max(1, min(2_000, left)), "ONCE", "SEQ", number
                try:
                    token = self.waiting.execute_command("LOCK.ACQUIRE", *words)
                    lost = 0 if token else lost - 1
                    if token or time.monotonic() >= until:
                        return token
                except (redis.ConnectionError, redis.TimeoutError):
                    if time.monotonic() >= until:
                        raise
                    time.sleep(0.05)  # then again: ONCE makes that safe
        finally:
            if lost:  # given up: what is still to be served grants nothing
                self.waiting.execute_command("LOCK.RELEASE", key, owner, "FINAL", number)

    def renew(self, key, owner, token, lease):  # False: it is lost, stop working
        return 1 == self.others.execute_command("LOCK.RENEW", key, owner, "PX", lease, "TOKEN", token)

    def release(self, key, owner, token):  # False: it was not held any more
        return 1 == self.others.execute_command("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token)
