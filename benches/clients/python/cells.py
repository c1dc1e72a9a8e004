"""One cell of a table: one way, so many contenders on one lock, for some seconds on the server."""

import os
import statistics
import tempfile
import time
from dataclasses import dataclass

import guarded
from processes import LoadFailed
from server import Counters


class LostUpdate(Exception):
    """Two contenders had the lock at a time."""


@dataclass(frozen=True)
class Layout:
    """Contenders, the client objects that they share, and how long a contender does something else after a release."""

    contenders: int
    clients: int
    pause_ms: int = 0

    def __str__(self):
        clients = "" if self.clients == 1 else f", {self.clients} clients"
        pause = f", {self.pause_ms} ms between the pairs of each" if self.pause_ms else ""
        return f"{self.contenders} contender{'s' if self.contenders > 1 else ''}{clients}{pause}"


@dataclass(frozen=True)
class Sample:
    """Figures of one way in one cell and one round."""

    pairs_per_s: float
    p50_ms: float
    p99_ms: float
    served_percent: float
    most_by_mean: float
    commands: float
    server_us: float
    client_us: float
    connections: int


def quantile(ordered, part):
    return ordered[round(part * (len(ordered) - 1))]


def check_the_check(server, processes, effort):
    """Contenders that take no lock must be found out."""
    try:
        measure(server, processes, "unlocked", Layout(16, 2), effort)
    except LostUpdate:
        return
    raise RuntimeError("contenders without a lock lost no update: the check does not work")


def share(layout, processes):
    """(contenders, client objects) of each process. Client objects are spread evenly over the processes."""
    used = min(len(processes), layout.clients)
    return [(process, layout.contenders // used, layout.clients // used) for process in processes[:used]]


class Window:
    """What the server, the lock's count and the contenders' processes say of the measured time."""

    def __init__(self, server, processes, path):
        self.server, self.processes, self.path = server, processes, path
        self.client_us = self._client_us()
        self.counters = Counters.of(server)
        self.pairs = guarded.counted(path)
        self.began = time.perf_counter()

    def _client_us(self):
        return sum(process.cpu_us() for process in self.processes)

    def end(self):
        """(pairs, seconds, calls of commands, microseconds of the server, microseconds of the contenders)."""
        seconds = time.perf_counter() - self.began
        pairs = guarded.counted(self.path) - self.pairs
        calls, cpu_us = Counters.of(self.server).since(self.counters)
        return pairs, seconds, sum(calls.values()), cpu_us, self._client_us() - self.client_us


def measure(server, processes, way, layout, effort):
    """Runs the cell and returns its Sample."""
    server.empty()
    handle, path = tempfile.mkstemp(prefix="lock-clients-count-")
    os.close(handle)
    guarded.create(path)
    try:
        return _measure(server, share(layout, processes), way, layout.pause_ms, effort, path)
    finally:
        os.unlink(path)


def _measure(server, parts, way, pause_ms, effort, path):
    for process, contenders, clients in parts:
        process.send("cell", way, server.port, contenders, clients, pause_ms, path)
    used = [process for process, _, _ in parts]
    _connected(used)
    _all(used, "start")
    time.sleep(effort.warm_up_s)
    _all(used, "measure")
    window = Window(server, used, path)
    time.sleep(effort.measured_s / 2)
    connections = server.clients()
    time.sleep(effort.measured_s / 2)
    ended = window.end()
    _all(used, "pause")
    for process in used:
        process.send("stop")
    figures = [process.figures() for process in used]
    _check(figures, path)
    return _sample(figures, ended, connections)


def _connected(processes):
    answers = [process.answer() for process in processes]
    failures = [answer for answer in answers if answer != "ready"]
    if failures:
        for process, answer in zip(processes, answers):
            if answer == "ready":
                process.order("stop")
        raise LoadFailed(failures[0])


def _all(processes, order):
    for process in processes:
        process.send(order)
    for process in processes:
        process.answer()


def _check(figures, path):
    for part in figures:
        if part["failure"]:
            raise LoadFailed(part["failure"])
    pairs, counted = sum(part["pairs"] for part in figures), guarded.counted(path)
    if pairs != counted:
        raise LostUpdate(f"{pairs} pairs, but counted {counted}")


def _sample(figures, ended, connections):
    pairs, seconds, commands, cpu_us, client_us = ended
    grants = [count for part in figures for count in part["grants"]]
    waits = sorted(wait for part in figures for wait in part["waits"] + part["open"])
    if not pairs or not sum(grants):
        raise LoadFailed("no contender had the lock in the measured time")
    return Sample(
        pairs_per_s=pairs / seconds,
        p50_ms=quantile(waits, 0.50) / 1e6,
        p99_ms=quantile(waits, 0.99) / 1e6,
        served_percent=100 * sum(1 for count in grants if count) / len(grants),
        most_by_mean=max(grants) / (sum(grants) / len(grants)),
        commands=commands / pairs,
        server_us=cpu_us / pairs,
        client_us=client_us / pairs,
        connections=connections,
    )


class Results:
    """The samples of all rounds, and their medians."""

    def __init__(self):
        self.samples = {}
        self.failures = {}

    def add(self, layout, way, sample):
        self.samples.setdefault((layout, way), []).append(sample)

    def fail(self, layout, way, why):
        self.failures.setdefault((layout, way), []).append(str(why))

    def rounds(self):
        return max((len(samples) for samples in self.samples.values()), default=0)

    def median(self, layout, way, figure):
        return statistics.median(getattr(sample, figure) for sample in self.samples[layout, way])

    def spread_percent(self, layout, way, figure):
        """Half the distance between the smallest and the largest round, in percent of the median."""
        values = [getattr(sample, figure) for sample in self.samples[layout, way]]
        return 50 * (max(values) - min(values)) / statistics.median(values)
