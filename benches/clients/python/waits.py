"""What many waits of one process cost: memory and connections of each package, at one wait and at thousands.

Each point has a process of its own. It makes a pair, so that its libraries are loaded, and then waits for a lock that
the bench holds. Then the bench releases the lock, and each wait is granted and released in its turn.
"""

import json
import time
from pathlib import Path

import page
import processes
from guarded import LOCK
from processes import LoadFailed
from server import wait_for

HOLDER = "bench"
WAIT_WITHIN_S = 120
LEASE_MS = 600_000

PACKAGES = {
    "redis-lock-client for Java, `acquireAsync`": processes.java,
    "redis_lock_client for Python, asyncio": lambda: processes.python("waiting.py"),
}


def resident_kb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


class Point:
    """The figures of one process with so many waits."""

    def __init__(self, server, start, count):
        server.empty()
        holder = server.connection
        process = start()
        try:
            process.order("open", server.port)
            if not holder.execute_command("LOCK.ACQUIRE", LOCK, HOLDER, "PX", LEASE_MS):
                raise LoadFailed("the bench did not get the lock")
            process.order("wait", count)
            wait_for(lambda: server.waiting() == count, WAIT_WITHIN_S, f"{count} waits are not in the server")
            self.heap_kb = int(process.order("heap")) / 1024
            self.resident_kb = resident_kb(process.pid())
            self.connections = server.clients()
            process.send("finish")
            began = time.perf_counter()
            holder.execute_command("LOCK.RELEASE", LOCK, HOLDER)
            self._check(process.answer(), count)
            self.granted_s = time.perf_counter() - began
        finally:
            process.close()

    @staticmethod
    def _check(answer, count):
        told = json.loads(answer)
        if told["failure"] or told["granted"] != count:
            raise LoadFailed(f"{told['granted']} of {count} waits were granted; {told['failure']}")


def section(server, count):
    """(the table, what failed)"""
    rows, failed = [], []
    for label, start in PACKAGES.items():
        try:
            one, many = (Point(server, start, number) for number in (1, count))
        except (LoadFailed, RuntimeError) as error:
            print(f"waits: {label}: failed: {error}", flush=True)
            failed.append(f"waits: {label}")
            continue
        rows += [_row(label, 1, one, ""), _row(label, count, many, _each(one, many, count))]
        print(f"waits: {label}: {rows[-1]}", flush=True)
    heads = ["waits of one process", "waits", "connections", "resident MB", "heap MB", "kB a wait", "all granted, s"]
    return page.table(heads, rows), failed


def _each(one, many, count):
    """Of the heap where the process can tell it, else of the resident memory."""
    figure = "heap_kb" if many.heap_kb else "resident_kb"
    return page.number((getattr(many, figure) - getattr(one, figure)) / (count - 1))


def _row(label, count, point, each):
    heap = page.number(point.heap_kb / 1024) if point.heap_kb else ""
    return [label, f"{count:,}", str(point.connections), page.number(point.resident_kb / 1024), heap, each,
            page.number(point.granted_s)]
