"""The client packages beside the libraries that programs in each language use for locks today: `make bench-clients`.

In every round each way does every cell; the ways take turns in being first. One server serves all of them. The
contenders are in processes of their own, which this program tells when to begin and to end; what it writes are medians.

usage: bench.py [quick] [java] [python] [go] [node] [rust] [waits]
"""

import os
import sys
import time

import page
import processes
import waits
from cells import Layout, Results, check_the_check, measure
from effort import FULL, QUICK
from processes import LoadFailed
from server import Server

JAVA = {
    "lock": "redis-lock-client, `FencedLock`",
    "lock-registry": "redis-lock-spring-integration, `FencedLockRegistry`",
    "spring-spin": "Spring Integration, `SPIN_LOCK`",
    "spring-pubsub": "Spring Integration, `PUB_SUB_LOCK`",
    "redisson": "Redisson, `RLock`",
}
PYTHON = {
    "lock": "redis_lock_client, threads",
    "lock-asyncio": "redis_lock_client, asyncio",
    "redis-py": "redis-py, threads",
    "redis-py-1ms": "redis-py, threads, `sleep=0.001`",
    "redis-py-asyncio": "redis-py, asyncio",
    "redis-py-asyncio-1ms": "redis-py, asyncio, `sleep=0.001`",
}
GO = {
    "lock": "redislock on go-redis",
    "lock-rueidis": "redislock on rueidis",
    "redsync": "redsync",
    "bsm": "bsm/redislock",
    "rueidislock": "rueidislock",
}
NODE = {
    "lock": "redis-lock-client",
    "redlock": "redlock",
    "semaphore": "redis-semaphore, `Mutex`",
}
RUST = {
    "lock": "redis-lock-client, `runtime(…)`",
    "lock-thread": "redis-lock-client",
    "rslock": "rslock",
}
LAYOUTS = [Layout(1, 1), Layout(16, 2), Layout(16, 2, pause_ms=10), Layout(256, 2)]
# Sixteen programs with a contender each, where the contenders of one client object do not help each other.
APART = Layout(16, 16)


class Language:
    """A section of the page: its ways, in processes that are kept for all rounds."""

    def __init__(self, mark, ways, layouts, effort, start):
        self.mark, self.ways, self.layouts, self.effort, self.start = mark, ways, layouts, effort, start
        self.results = Results()
        self.versions = ""

    def measure(self, server):
        began = time.monotonic()
        loads = self.start()
        try:
            self.versions = loads[0].order("versions")
            check_the_check(server, loads, self.effort)
            for done in range(self.effort.thrown_away + self.effort.rounds):
                if not self.effort.has_time_after(done, began):
                    break
                self._round(server, loads, done)
        finally:
            for load in loads:
                load.close()

    def _round(self, server, loads, done):
        ways = list(self.ways)
        turn = done % len(ways)
        kept = done >= self.effort.thrown_away
        for layout in self.layouts:
            for way in ways[turn:] + ways[:turn]:
                began = time.monotonic()
                try:
                    sample = measure(server, loads, way, layout, self.effort)
                    told = f"{sample.pairs_per_s:.0f} pairs/s, p99 {sample.p99_ms:.2f} ms"
                    if kept:
                        self.results.add(layout, way, sample)
                except LoadFailed as error:
                    told = f"failed: {error}"
                    self.results.fail(layout, way, error)
                print(f"{self.mark} {done + 1}: {layout}; {self.ways[way]}: {told}"
                      f" ({time.monotonic() - began:.1f} s)", flush=True)

    def section(self):
        head = f"{self.versions}. {self.effort.in_words(self.results.rounds())}."
        tables = [f"### {self.mark.capitalize()}: {layout}\n\n{self._table(layout)}" for layout in self.layouts]
        return "\n".join([page.wrapped(head), *tables, self._failures()])

    def _table(self, layout):
        rows = []
        for way, label in self.ways.items():
            if (layout, way) in self.results.samples:
                rows.append([label, *self._row(layout, way)])
        return page.table(["a pair by", "pairs/s", "±%", "wait p50 ms", "p99 ms", "served %", "most/mean",
                           "commands/pair", "server µs/pair", "client µs/pair", "connections"], rows)

    def _row(self, layout, way):
        def median(figure):
            return self.results.median(layout, way, figure)

        return [
            page.number(median("pairs_per_s")),
            f"{self.results.spread_percent(layout, way, 'pairs_per_s'):.0f}",
            page.number(median("p50_ms")),
            page.number(median("p99_ms")),
            f"{median('served_percent'):.0f}",
            page.number(median("most_by_mean")),
            page.number(median("commands")),
            page.number(median("server_us")),
            page.number(median("client_us")),
            f"{median('connections'):.0f}",
        ]

    def failures(self):
        """What did not do a cell, also in a round that is thrown away."""
        return sorted({f"{self.mark}: {way}" for _, way in self.results.failures})

    def _failures(self):
        return page.notes(
            f"{layout}, {self.ways[way]}: failed {len(failures)} times: {failures[0][:200]}"
            for (layout, way), failures in self.results.failures.items()
        )


def languages(effort):
    return [
        # A JVM compiles a path for its first 20,000 to 40,000 pairs.
        Language("java", JAVA, [*LAYOUTS, APART], effort.throwing_away(3), lambda: [processes.java()]),
        Language("python", PYTHON, LAYOUTS, effort,
                 lambda: [processes.python("load.py") for _ in range(2)]),
        Language("go", GO, LAYOUTS, effort, lambda: [processes.go()]),
        Language("node", NODE, LAYOUTS, effort.throwing_away(1), lambda: [processes.node()]),
        Language("rust", RUST, LAYOUTS, effort, lambda: [processes.rust()]),
    ]


def setting(server, load_average):
    return page.wrapped(f"{page.today()}, module and package of commit {page.commit()}, {server.version()}, "
                        f"{page.machine()}, load average before the start {load_average}.")


def main():
    words = sys.argv[1:]
    quick = "quick" in words
    parts = ["java", "python", "go", "node", "rust", "waits"]
    chosen = [word for word in words if word != "quick"] or parts
    if not set(chosen) <= set(parts):
        sys.exit(__doc__)
    effort = QUICK if quick else FULL
    began = time.monotonic()
    load_average = f"{os.getloadavg()[0]:.2f}"
    sections, failures = {}, []
    with Server() as server:
        for language in languages(effort):
            if language.mark in chosen:
                language.measure(server)
                sections[language.mark] = language.section()
                failures += language.failures()
        if "waits" in chosen:
            sections["waits"], failed = waits.section(server, effort.waits)
            failures += failed
        told = setting(server, load_average)
    sections = {mark: f"{told}\n{section}" for mark, section in sections.items()}
    print(f"{time.monotonic() - began:.0f} s; written: {page.write(sections, quick)}")
    if failures:
        sys.exit("failed: " + ", ".join(failures))


if __name__ == "__main__":
    main()
