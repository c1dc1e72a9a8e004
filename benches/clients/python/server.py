"""The measured server: a process of its own with the module, on a loopback port and pinned to core 0.

Its counters are read with INFO, which is the only command that the bench itself sends while it measures.
"""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis

# Below the ports that Linux gives to outgoing connections.
PORTS = range(20_000, 32_000)
STARTS_WITHIN_S = 30
EMPTY_WITHIN_S = 60
ROOT = Path(__file__).resolve().parents[3]


def cores():
    """The cores of the machine, not only those that this process may use."""
    return os.cpu_count() or 1


def pinned(core, words):
    """The command line on one core, where the machine has two."""
    return ["taskset", "-c", str(core), *words] if cores() > 1 else list(words)


def module():
    return str(Path(os.environ.get("LOCK_MODULE", ROOT / "target/release/libredis_lock.so")).resolve())


def free_port():
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Server:
    """A running server. Use it in a `with` statement: the end of the block ends the process."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="lock-clients-")
        self.port = free_port()
        program = os.environ.get("LOCK_SERVER", "redis-server")
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "dir": self.directory, "loadmodule": module(),
                   "logfile": os.path.join(self.directory, "log"), "maxclients": 20_000}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen(pinned(0, [program, *words]), stdout=subprocess.DEVNULL)
        self.connection = redis.Redis(host="127.0.0.1", port=self.port, single_connection_client=False)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise

    def _wait_until_it_answers(self):
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self.connection.ping()
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                if self.process.poll() is not None or time.monotonic() > until:
                    log = Path(self.directory, "log")
                    told = log.read_text() if log.exists() else "no log"
                    raise RuntimeError(f"the server does not answer: {told}") from None
                time.sleep(0.02)

    def version(self):
        info = self.connection.info("server")
        name = info.get("server_name", "redis")
        return f"{name} {info.get('valkey_version', info['redis_version'])}"

    def clients(self):
        """Connections of the measured clients."""
        return self.connection.info("clients")["connected_clients"] - 1

    def waiting(self):
        """Requests that wait in the server, as tickets or parked."""
        info = self.connection.info("everything")
        return int(info.get("lock_tickets", 0)) + int(info.get("lock_waiters", 0))

    def empty(self):
        """Waits until the clients of the last cell have gone, and removes their keys."""
        wait_for(lambda: self.clients() == 0, EMPTY_WITHIN_S, "the clients of the last cell are still connected")
        self.connection.flushall()

    def close(self):
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wait_for(condition, seconds, otherwise):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(otherwise)
        time.sleep(0.005)


class Counters:
    """What the server had counted at one moment: its CPU time and the calls of each command."""

    def __init__(self, info):
        self.cpu_us = (info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6
        self.calls = {
            name.removeprefix("cmdstat_"): value["calls"]
            for name, value in info.items()
            if name.startswith("cmdstat_") and name != "cmdstat_info"
        }

    @classmethod
    def of(cls, server):
        return cls(server.connection.info("everything"))

    def since(self, before):
        """(calls of each command, microseconds of the server) between two moments."""
        calls = {name: count - before.calls.get(name, 0) for name, count in self.calls.items()}
        return {name: count for name, count in calls.items() if count}, self.cpu_us - before.cpu_us
