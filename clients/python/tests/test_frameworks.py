"""django-redis and celery-redbeat, with the real packages where they are installed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis
from harness import TestServer, wait_for

import redis_lock_client as client
import redis_lock_client.asyncio as asyncio_client


def test_the_class_of_a_client(server: TestServer) -> None:
    own = client.Redis(port=server.port)
    assert isinstance(own.lock("k", timeout=5), client.Lock)
    assert isinstance(own.lock("k", 5, 0.1, True, None), client.Lock)
    assert isinstance(own.lock("k", lock_class=redis.lock.Lock), redis.lock.Lock)

    async def make() -> Any:
        return asyncio_client.Redis(port=server.port).lock("k")

    assert isinstance(asyncio.run(make()), asyncio_client.Lock)
    with client.Redis.from_url(server.url).lock("k", 5) as lock:
        assert lock.token


def test_django_redis(server: TestServer) -> None:
    pytest.importorskip("django_redis")
    from django.conf import settings

    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"{server.url}/1",
            "OPTIONS": {"REDIS_CLIENT_CLASS": "redis_lock_client.Redis"},
        }
    }
    if not settings.configured:
        settings.configure(CACHES=caches)
    from django.core.cache import cache

    with cache.lock("job", timeout=10, blocking_timeout=2) as lock:
        assert isinstance(lock, client.Lock)
        assert lock.token
        assert not cache.lock("job", timeout=10, blocking_timeout=0.1).acquire()
        order: list[int] = []

        def work() -> None:
            with cache.lock("job", timeout=10) as other:
                order.append(other.token)

        thread = threading.Thread(target=work)
        thread.start()
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
    thread.join(10)
    assert len(order) == 1


def test_celery_redbeat(server: TestServer) -> None:
    pytest.importorskip("redbeat")
    from celery import Celery
    from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock

    def scheduler() -> Any:
        app = Celery("tests", broker=server.url)
        app.conf.redbeat_redis_url = server.url
        app.conf.redbeat_lock_timeout = 20
        app.redbeat_redis = client.Redis.from_url(server.url, decode_responses=True)
        return RedBeatScheduler(app=app, lazy=True)

    class Sender:
        def __init__(self, scheduler: Any) -> None:
            self.scheduler = scheduler

    one, other = scheduler(), scheduler()
    acquire_distributed_beat_lock(Sender(one))
    assert isinstance(one.lock, client.Lock)
    for _ in range(3):
        one.lock.extend(int(one.lock_timeout))
        assert 15_000 < server.run("PTTL redbeat::lock") <= 20_000, "the lease is set, and not added to"
    owned: list[bool] = []

    def begin() -> None:
        acquire_distributed_beat_lock(Sender(other))
        owned.append(other.lock.owned())
        other.lock.release()

    thread = threading.Thread(target=begin)
    thread.start()
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    one.lock.release()
    thread.join(10)
    assert owned == [True]
