"""A process with many waits for one lock, in asyncio. It reads orders from its standard input, as load.py does:

    open PORT     makes a client object and a pair; "done"
    wait N        begins N waits; "done"
    heap          0: Python does not tell it
    finish        "granted" and "failure" in JSON, when every wait was granted and released
"""

import asyncio
import json
import sys

from guarded import LOCK
from ways import WAYS

GRANTED_WITHIN_S = 120


class Waiting:
    def __init__(self):
        self.tasks = []

    async def obey(self, order, words):
        if order == "open":
            self.client = WAYS["lock-asyncio"].connect(int(words[0]), 1)
            await self.client.connect()
            await self._wait(f"{LOCK}:open")
        elif order == "wait":
            self.tasks = [asyncio.create_task(self._wait(LOCK)) for _ in range(int(words[0]))]
            await asyncio.sleep(0)
        elif order == "heap":
            return "0"
        else:
            return json.dumps(await self._finish())
        return "done"

    async def _wait(self, name):
        lock = self.client.lock(name)
        await lock.acquire()
        await lock.release()

    async def _finish(self):
        ended, _ = await asyncio.wait(self.tasks, timeout=GRANTED_WITHIN_S)
        failures = [task.exception() for task in ended if task.exception()]
        await self.client.close()
        return {"granted": len(ended) - len(failures), "failure": repr(failures[0]) if failures else None}


async def main():
    waiting = Waiting()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, *words = line.split()
        print(await waiting.obey(order, words), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
