"""Locks of the redis-lock module for redis.asyncio, with waits by ticket. Times are in milliseconds."""

import asyncio
import contextlib
import itertools
import secrets
import time

import redis
from redis.utils import str_if_bytes

NUMBERS = itertools.count(time.time_ns() // 1000)  # of acquisitions: they rise, over a restart too


class Tickets:
    def __init__(self, client, shard=""):  # `shard`, in a cluster: the hash tag of the keys, "{invoices}"
        self.redis, self.shard, self.open = client, shard, {}  # `open`: the queue of messages of each tag
        self.channel = f"lock:{shard}{secrets.token_hex(8)}"
        self.listening = asyncio.create_task(self._listen())

    async def acquire(self, key, owner, wait, lease):
        """The fencing token, or None when it was not granted in time."""
        until, tag, messages = time.monotonic() + wait / 1000, secrets.token_hex(8), asyncio.Queue()
        self.open[tag] = messages  # before the request: the message may be quicker than the reply
        messages.put_nowait("ask")
        number = next(NUMBERS)
        give_up = "LOCK.RELEASE", key, owner, "FINAL", number  # also what is still to be served grants nothing
        # Not wait_for(): before Python 3.12 it may lose a cancellation that comes with a message.
        over = asyncio.get_running_loop().call_later(wait / 1000 + 1, messages.put_nowait, "over")
        try:
            while True:
                word, *rest = (await messages.get()).split()
                left = max(0, until - time.monotonic())
                if word in ("timeout", "over"):
                    break
                if word == "failed":
                    raise redis.ResponseError(rest[0])
                words = key, owner, "PX", lease, "BLOCK", int(left * 1000) + 1, "NOTIFY", self.channel, tag, "ONCE"
                words += ("SEQ", number)
                try:
                    if word == "granted" and await self.renew(key, owner, rest[0], lease):
                        return int(rest[0])
                    token = await self.redis.execute_command("LOCK.ACQUIRE", *words)
                    if isinstance(token, int):
                        return token
                except (redis.ConnectionError, redis.TimeoutError):
                    if time.monotonic() >= until:
                        raise
                    await asyncio.sleep(0.05)
                    messages.put_nowait("ask")  # ONCE makes that safe
                except redis.ResponseError as refused:
                    if not str(refused).startswith("NOSUBSCRIBER"):  # else the next subscription asks
                        raise
        except BaseException:
            with contextlib.suppress(redis.RedisError):
                await self.redis.execute_command(*give_up)
            raise
        finally:
            over.cancel()
            del self.open[tag]
        await self.redis.execute_command(*give_up)
        return None

    async def renew(self, key, owner, token, lease):  # False: it is lost, stop working
        return 1 == await self.redis.execute_command("LOCK.RENEW", key, owner, "PX", lease, "TOKEN", token)

    async def release(self, key, owner, token):  # False: it was not held any more
        return 1 == await self.redis.execute_command("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token)

    async def _listen(self):
        while True:
            try:
                if self.shard:
                    await self.redis.exists(self.channel)  # a command by which the client learns the slot's node
                async with self.redis.pubsub() as pubsub:
                    await (pubsub.ssubscribe if self.shard else pubsub.subscribe)(self.channel)
                    hear = pubsub.get_sharded_message if self.shard else pubsub.get_message
                    while True:
                        await self._heard(await hear(timeout=5) or {"type": None})
            except redis.RedisError:
                await asyncio.sleep(0.05)

    async def _heard(self, message):
        if message["type"] in ("message", "smessage"):
            text = str_if_bytes(message["data"])
            if messages := self.open.get(text.rpartition(" ")[2]):
                messages.put_nowait(text)
        elif message["type"] in ("subscribe", "ssubscribe"):  # messages may have been lost: ask again
            for messages in self.open.values():
                messages.put_nowait("ask")
        elif message["type"] == "sunsubscribe":
            raise redis.ConnectionError("the slot has moved")
