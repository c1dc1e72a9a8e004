"""A process of contenders. It reads orders from its standard input and answers on its standard output, line by line:

    versions          the library and the interpreter
    cell WAY PORT CONTENDERS CLIENTS PAUSE FILE
                      makes client objects and contenders; "ready" when all are connected, or what failed
    start             the contenders begin
    measure, pause    the beginning and the end of the measured time
    stop              ends the contenders; the answer is their figures in JSON

Contenders are threads, or tasks of one event loop. Each takes the lock and gives it back at once, again and again, with
a PAUSE of so many milliseconds between.
"""

import asyncio
import json
import platform
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

from guarded import LOCK, Guarded
from ways import WAYS

# Ends contenders that are never told to stop.
MOST_PAIRS = 1_000_000
# In one of so many pairs other contenders get the chance to come between.
LETS_OTHERS_RUN = 50
STOPS_WITHIN_S = 60
now = time.perf_counter_ns


class Contender:
    """The figures of one contender."""

    def __init__(self, cell):
        self.cell = cell
        self.pairs = 0
        self.asked = 0
        self.waits = []

    def granted(self):
        if self.cell.measuring:
            self.waits.append(now() - self.asked)
        self.asked = 0

    def goes_on(self):
        return not self.cell.stop and self.pairs < MOST_PAIRS

    def run(self, lock):
        guarded = self.cell.guarded
        while self.goes_on():
            self.asked = now()
            token = lock.acquire()
            self.granted()
            count = guarded.enter(token)
            if self.pairs % LETS_OTHERS_RUN == 0:
                time.sleep(0)
            guarded.leave(count)
            self.pairs += 1
            lock.release()
            if self.cell.pause_s:
                time.sleep(self.cell.pause_s)

    async def run_task(self, lock):
        guarded = self.cell.guarded
        while self.goes_on():
            self.asked = now()
            token = await lock.acquire()
            self.granted()
            count = guarded.enter(token)
            if self.pairs % LETS_OTHERS_RUN == 0:
                await asyncio.sleep(0)
            guarded.leave(count)
            self.pairs += 1
            await lock.release()
            if self.cell.pause_s:
                await asyncio.sleep(self.cell.pause_s)


class Cell:
    """Contenders of one way, on one lock."""

    def __init__(self, way, port, contenders, clients, pause_ms, path):
        self.way, self.port, self.clients = way, port, clients
        self.pause_s = pause_ms / 1e3
        self.guarded = Guarded(path)
        self.contenders = [Contender(self) for _ in range(contenders)]
        self.measuring = False
        self.stop = False
        self.failure = None
        self.ready = threading.Event()
        self.begin = threading.Event()
        self.open = []
        self.loop = None
        self.tasks = []
        self.thread = threading.Thread(target=self._guard, daemon=True)
        self.thread.start()
        self.ready.wait(STOPS_WITHIN_S)

    def _guard(self):
        try:
            if self.way.asynchronous:
                asyncio.run(self._tasks())
            else:
                self._threads()
        except BaseException as error:  # told to the bench, whatever it is
            self.fail(error)
        finally:
            self.ready.set()

    def fail(self, error):
        self.failure = self.failure or f"{type(error).__name__}: {error}"
        self.stop = True

    def _connect(self):
        share = -(-len(self.contenders) // self.clients)
        return [self.way.connect(self.port, share) for _ in range(self.clients)]

    def _threads(self):
        clients = self._connect()
        try:
            connected = threading.Barrier(len(self.contenders) + 1)

            def contend(number):
                try:
                    client = clients[number % len(clients)]
                    client.connect()
                    lock = client.lock(LOCK)
                    connected.wait(STOPS_WITHIN_S)
                    self.begin.wait()
                    self.contenders[number].run(lock)
                except BaseException as error:
                    self.fail(error)
                    connected.abort()

            with ThreadPoolExecutor(len(self.contenders)) as threads:
                for number in range(len(self.contenders)):
                    threads.submit(contend, number)
                connected.wait(STOPS_WITHIN_S)
                self.ready.set()
        finally:
            for client in clients:
                client.close()

    async def _tasks(self):
        clients = self._connect()
        try:
            await asyncio.gather(*(clients[n % len(clients)].connect() for n in range(len(self.contenders))))
            self.ready.set()
            await asyncio.to_thread(self.begin.wait)
            self.loop = asyncio.get_running_loop()
            self.tasks = [
                asyncio.create_task(contender.run_task(clients[n % len(clients)].lock(LOCK)))
                for n, contender in enumerate(self.contenders)
            ]
            for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    self.fail(ended)
        finally:
            for client in clients:
                await client.close()

    def _cancel_waits(self):
        """Ends the tasks that wait for the lock: hundreds of pollers would take seconds to get it one by one."""
        for contender, task in zip(self.contenders, self.tasks):
            if contender.asked:
                task.cancel()

    def start(self):
        self.begin.set()

    def measure(self):
        self.measuring = True

    def pause(self):
        """Ends the measured time. The waits that are still open count with their age."""
        self.measuring = False
        moment = now()
        self.open = [moment - asked for asked in (contender.asked for contender in self.contenders) if asked]

    def figures(self):
        self.stop = True
        if self.loop:
            self.loop.call_soon_threadsafe(self._cancel_waits)
        self.thread.join(STOPS_WITHIN_S)
        if self.thread.is_alive():
            self.fail(RuntimeError("the contenders do not end"))
        self.guarded.close()
        return {
            "waits": [wait for contender in self.contenders for wait in contender.waits],
            "grants": [len(contender.waits) for contender in self.contenders],
            "open": self.open,
            "pairs": sum(contender.pairs for contender in self.contenders),
            "failure": self.failure,
        }


def versions():
    return f"redis-py {redis.__version__}; Python {platform.python_version()}"


def obey(order, words, cell):
    if order == "versions":
        return cell, versions()
    if order == "cell":
        way, *numbers, path = words
        cell = Cell(WAYS[way], *map(int, numbers), path)
        return cell, cell.failure or "ready"
    if order == "stop":
        return None, json.dumps(cell.figures())
    {"start": cell.start, "measure": cell.measure, "pause": cell.pause}[order]()
    return cell, "done"


def main():
    cell = None
    for line in sys.stdin:
        order, *words = line.split()
        cell, answer = obey(order, words, cell)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
