"""Locks of the redis-lock module for threads, which share one object; its own thread runs the event loop."""

import asyncio
import threading

from tickets import Tickets


class ThreadTickets:
    def __init__(self, connect, shard=""):  # `connect` makes the client: lambda: redis.asyncio.Redis(...)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.tickets = self._run(self._start(connect, shard))

    def acquire(self, key, owner, wait, lease):
        return self._run(self.tickets.acquire(key, owner, wait, lease))

    def renew(self, key, owner, token, lease):
        return self._run(self.tickets.renew(key, owner, token, lease))

    def release(self, key, owner, token):
        return self._run(self.tickets.release(key, owner, token))

    async def _start(self, connect, shard):
        return Tickets(connect(), shard)

    def _run(self, call):
        future = asyncio.run_coroutine_threadsafe(call, self.loop)
        try:
            return future.result()
        except BaseException:  # such as KeyboardInterrupt
            future.cancel()  # then the ticket is withdrawn
            raise
