"""The processes of contenders as the bench handles them: orders in, answers out, all on the core of the load."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from server import ROOT, pinned

HERE = Path(__file__).resolve().parent
LOAD_CORE = 1


class LoadFailed(Exception):
    """A contender failed, so there are no figures."""


class Process:
    """A process that obeys the orders of load.py."""

    def __init__(self, words):
        paths = [str(ROOT / "clients/python/src"), os.environ.get("PYTHONPATH", "")]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join(filter(None, paths)))
        self.process = subprocess.Popen(pinned(LOAD_CORE, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)

    def send(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise LoadFailed("the process of the load has ended") from None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise LoadFailed(f"the process of the load ended with {self.process.wait()}")
        return line.strip()

    def order(self, *words):
        self.send(*words)
        return self.answer()

    def figures(self):
        return json.loads(self.answer())

    def cpu_us(self):
        """CPU time of all threads of the program until now, the kernel's part included."""
        ticks = Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) * 1e6 / os.sysconf("SC_CLK_TCK")

    def pid(self):
        """Of the program itself: taskset replaces itself by it."""
        return self.process.pid

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def python(program, *words):
    return Process([sys.executable, str(HERE / program), *map(str, words)])


def java():
    return Process(["java", "-Xmx1g", "-jar", str(ROOT / "target/bench-clients/java/bench.jar")])


def go():
    return Process([str(ROOT / "target/bench-clients/go/bench")])


def rust():
    return Process([str(ROOT / "target/bench-clients/rust/release/bench")])


def node():
    return Process(["node", str(ROOT / "target/bench-clients/node/main.mjs")])
