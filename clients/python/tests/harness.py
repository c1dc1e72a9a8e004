"""Real servers for the tests: each test starts its own on a free port of the loopback interface.

``LOCK_MODULE`` names the module (default: the repository's ``target/release``), ``LOCK_SERVER`` the server program
(default: ``redis-server``).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional

import redis
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

_ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULE = os.environ.get("LOCK_MODULE", str(_ROOT / "target/release/libredis_lock.so"))
PROGRAM = os.environ.get("LOCK_SERVER", "redis-server")
USERS = _ROOT / "users.acl.example"


def free_port() -> int:
    """A port below those that the kernel gives to clients."""
    for _ in range(1_000):
        port = random.randint(10_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def wait_for(what: str, condition: Callable[[], Any], limit: float = 20.0) -> Any:
    """Waits until the condition holds, and returns its value."""
    end = time.monotonic() + limit
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            value = condition()
            if value:
                return value
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.01)


def bounded(seconds: float, is_asyncio: bool = False) -> dict[str, Any]:
    """The options of a client whose requests last at most this long."""
    kind: Any = redis.asyncio.retry.Retry if is_asyncio else Retry
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": kind(NoBackoff(), 0)}


def repeating(times: int) -> dict[str, Any]:
    """The options of a client that sends a request again by itself."""
    errors = [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError]
    return {"retry": Retry(NoBackoff(), times), "retry_on_error": errors}


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or the class of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def soonest(work: Callable[[], Any]) -> float:
    """The shortest time of three runs, in seconds: other work of the machine may delay one."""
    times = []
    for _ in range(3):
        begin = time.monotonic()
        work()
        times.append(time.monotonic() - begin)
    return min(times)


class TestServer:
    """A server with the module."""

    __test__ = False

    def __init__(self, *options: str, module: bool = True) -> None:
        self.directory = tempfile.mkdtemp(prefix="redis-lock-test-")
        self.port = free_port()
        self._options = options
        self._module = module
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._observer: Optional[redis.Redis] = None
        self.start()

    def start(self) -> None:
        words = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.directory]
        words += ["--enable-debug-command", "yes"]
        if self._module:
            words += ["--loadmodule", MODULE]
        log = open(os.path.join(self.directory, "log"), "ab")  # noqa: SIM115 - the process has it
        self._process = subprocess.Popen([*words, *self._options], stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + 20
        while True:
            try:
                if self.observer.ping():
                    return
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(pathlib.Path(self.directory, "log").read_text()[-2_000:])
            time.sleep(0.01)

    @property
    def observer(self) -> redis.Redis:
        """A client of the test itself."""
        if self._observer is None:
            port = 0 if "--tls-port" in self._options else self.port
            self._observer = redis.Redis(port=port or self.port, socket_timeout=10, client_name="observer")
        return self._observer

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server hangs."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
        if self._observer is not None:
            self._observer.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, line: str) -> Any:
        return self.observer.execute_command(*line.split())

    def stat(self, name: str) -> int:
        """A number of ``INFO lock``."""
        found: dict[str, Any] = self.observer.info("lock")
        return int(found[f"lock_{name}"])

    def clients(self) -> list[dict[str, Any]]:
        """The connections besides that of the test."""
        return [one for one in self.observer.client_list() if one["name"] != "observer"]

    def subscribers(self) -> list[dict[str, Any]]:
        return [one for one in self.clients() if int(one["sub"]) or int(one.get("ssub", 0))]

    def kill_subscribers(self) -> None:
        found = self.subscribers()
        assert found, "no subscription"
        for one in found:
            self.observer.client_kill_filter(_id=one["id"])

    def hold(self, key: str = "k") -> int:
        """A hold of another owner."""
        return int(self.run(f"LOCK.ACQUIRE {key} holder PX 600000"))

    def queue(self, key: str = "k", count: int = 10_000) -> list[bytes]:
        """The owners in the queue of a key, in order."""
        info = pairs(self.run(f"LOCK.INFO {key} WAITERS COUNT {count}") or [])
        return [pairs(waiter)[b"owner"] for waiter in info.get(b"queue", [])]


def pairs(reply: Any) -> dict[Any, Any]:
    """A map, as RESP2 or RESP3 has it."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


# Clusters


def two_nodes(*options: str) -> tuple[TestServer, TestServer]:
    """Two primaries: the first serves every slot but the last. (A node without slots has no vote.)"""
    nodes = []
    for _ in range(2):
        bus = free_port()
        nodes.append((_node(bus, options), bus))
    (here, _), (there, bus) = nodes
    here.run("CLUSTER SET-CONFIG-EPOCH 1")
    there.run("CLUSTER SET-CONFIG-EPOCH 2")
    here.run("CLUSTER ADDSLOTSRANGE 0 16382")
    there.run("CLUSTER ADDSLOTS 16383")
    here.run(f"CLUSTER MEET 127.0.0.1 {there.port} {bus}")
    for node in (here, there):
        wait_for("the cluster", lambda node=node: _is_served(node))
    return here, there


def add_replica(primary: TestServer) -> TestServer:
    """A node that replicates this one."""
    bus = free_port()
    node = _node(bus, ())
    name = primary.observer.execute_command("CLUSTER MYID").decode()
    primary.run(f"CLUSTER MEET 127.0.0.1 {node.port} {bus}")
    wait_for("the replica", lambda: node.run(f"CLUSTER REPLICATE {name}"))
    wait_for("its data", lambda: node.observer.info("replication").get("master_link_status") == "up")
    wait_for("the slots", lambda: any(len(slots) > 3 for slots in primary.observer.execute_command("CLUSTER SLOTS")))
    return node


def _node(bus: int, options: tuple[str, ...]) -> TestServer:
    cluster = ["--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-allow-replica-migration", "no"]
    return TestServer(*cluster, *options)


def _is_served(node: TestServer) -> bool:
    info = _cluster_info(node)
    return info["cluster_state"] == "ok" and info["cluster_slots_assigned"] == "16384" and _sees_both(node)


def _cluster_info(node: TestServer) -> dict[str, str]:
    info = node.observer.execute_command("CLUSTER INFO")
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    text = info.decode() if isinstance(info, bytes) else str(info)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _sees_both(node: TestServer) -> bool:
    return len(node.observer.execute_command("CLUSTER SLOTS")) >= 2


def move_slot(source: TestServer, target: TestServer, slot: int) -> None:
    """Moves a slot key by key."""
    names = [node.observer.execute_command("CLUSTER MYID").decode() for node in (source, target)]
    wait_for("one epoch", lambda: _epoch(source) == _epoch(target))
    target.run(f"CLUSTER SETSLOT {slot} IMPORTING {names[0]}")
    source.run(f"CLUSTER SETSLOT {slot} MIGRATING {names[1]}")
    while True:
        keys = source.run(f"CLUSTER GETKEYSINSLOT {slot} 100")
        if not keys:
            break
        for key in keys:
            source.observer.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 10_000)
    target.run(f"CLUSTER SETSLOT {slot} NODE {names[1]}")
    source.run(f"CLUSTER SETSLOT {slot} NODE {names[1]}")


def _epoch(node: TestServer) -> str:
    return _cluster_info(node)["cluster_current_epoch"]


# A proxy


class Proxy:
    """A proxy of connections that drops or holds back the data that the test names."""

    def __init__(self, port: int) -> None:
        self.lost = 0
        self._target = port
        self._loses: list[bytes] = []
        self._holds: list[bytes] = []
        self._may_go = threading.Event()
        self._goes_on = True
        self._ends: list[bytes] = []
        self._breaks: list[bytes] = []
        self._is_broken = False
        self._dead: set[socket.socket] = set()
        #: The requests that were held back.
        self.held = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_message(self, text: bytes) -> None:
        """The next data with this text is lost, and so is its connection."""
        self._loses.append(text)

    def hold_back(self, text: bytes, goes_on: bool = True) -> None:
        """The next request with this text is held back, and what follows on its connection, until `let_go`; also when
        the client closes the connection meanwhile. If it does not go on, what follows is lost."""
        self._may_go.clear()
        self._goes_on = goes_on
        self._holds.append(text)

    def cut_after(self, text: bytes) -> None:
        """A connection ends behind the next data with this text."""
        self._ends.append(text)

    def break_network(self, text: bytes = b"") -> None:
        """No data passes any more and no end of a connection, and new connections fail; with a text: from the next
        data on that has it."""
        if text:
            self._breaks.append(text)
        else:
            self._is_broken = True
            self._dead.update(self._sockets)

    def mend_network(self) -> None:
        """New connections are made again. The old ones stay as they are."""
        self._is_broken = False

    def let_go(self) -> None:
        self._may_go.set()

    def connect_to(self, port: int) -> None:
        """New connections are made to this server; the open ones end."""
        self._target = port
        self.cut()

    def refuse(self) -> None:
        """New connections end at once, until :meth:`connect_to`; the open ones go on."""
        self._target = free_port()

    def cut(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self._may_go.set()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._is_broken:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                self._sockets += [near, far]
                for here, there in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(here, there, here is far), daemon=True).start()

    def _copy(self, here: socket.socket, there: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = here.recv(65_536)
                if self._breaks and self._breaks[0] in data:
                    self._breaks.pop(0)
                    self.break_network()
                if here in self._dead:
                    if not data:
                        return
                    continue
                if not data:
                    break
                if self._ends and self._ends[0] in data:
                    self._ends.pop(0)
                    there.sendall(data)
                    break
                if is_reply and self._loses and self._loses[0] in data:
                    self._loses.pop(0)
                    self.lost += 1
                    break
                if not is_reply and self._holds and self._holds[0] in data:
                    self._holds.pop(0)
                    self.held += 1
                    self._may_go.wait(20)
                    there.sendall(data)
                    if not self._goes_on:
                        break
                    continue
                there.sendall(data)
        for one in (here, there):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
