"""Grants that nothing has read, of fresh owners and of one that the program names."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Optional

import pytest
from harness import Proxy, TestServer
from test_asyncio import until

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client.asyncio._loops import TaskHub


@pytest.mark.parametrize("owner", [None, "worker-7"])
@pytest.mark.parametrize("keys", [["k"], ["k", "l"]])
@pytest.mark.parametrize("what", ["first reply", "ticket's reply", "ticket's message", "confirmation"])
def test_a_grant_that_nothing_has_read_is_undone(
    server: TestServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, what: str, keys: list[str], owner: Optional[str]
) -> None:
    """The task is cancelled in the same turn of the loop in which the grant is read."""

    armed: list[asyncio.Task[Any]] = []
    heard, call, batch = TaskHub.heard, TaskHub.call, TaskHub.batch

    def hear(hub: TaskHub, words: list[Any]) -> None:
        heard(hub, words)
        if armed and what == "ticket's message":
            armed.pop().cancel()

    async def read_one(hub: TaskHub, words: Any, key: bytes) -> Any:
        return await read(await call(hub, words, key))

    async def read_all(hub: TaskHub, commands: Any) -> Any:
        return await read(await batch(hub, commands))

    async def read(reply: Any) -> Any:
        if armed and what != "ticket's message" and reply not in (None, b"QUEUED", "QUEUED"):
            armed.pop().cancel()
            # sleep: the turn of the loop in which it is cancelled
            await asyncio.sleep(0)
        return reply

    monkeypatch.setattr(TaskHub, "heard", hear)
    monkeypatch.setattr(TaskHub, "call", read_one)
    monkeypatch.setattr(TaskHub, "batch", read_all)

    async def work() -> None:
        async with client.asyncio.Server.open(f"redis://127.0.0.1:{proxy.port}") as locks:
            await locks.lock("warm").acquire()
            lock: Any = locks.lock("k", owner=owner, timeout=600)
            if len(keys) > 1:
                lock = locks.multi_lock(keys, owner=owner, timeout=600)
            if what != "first reply":
                server.hold()
            if what == "ticket's reply":
                proxy.hold_back(b"NOTIFY")
            task = asyncio.create_task(lock.acquire())
            if what == "ticket's reply":
                await until("the request", lambda: proxy.held == 1)
            elif what != "first reply":
                await until("the ticket", lambda: server.stat("tickets") == 1)
            armed.append(task)
            if what != "first reply":
                server.run("LOCK.RELEASE k holder")
            proxy.let_go()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 10)
            assert task.cancelled()
            await until("the grant", lambda: server.stat("grants") > len(keys))
            await until("free keys", lambda: server.run(f"EXISTS {' '.join(keys)}") == 0, 3)

    asyncio.run(work())
