"""A double of a server with the module, for unit tests: in this process, on the loopback interface.

The real package runs above it::

    with LockServer() as server:
        lock = Lock(server.client(), "k", timeout=10)
        lock.acquire()
        server.advance(11)
        assert lock.lost.wait(1)

It has locks of one key and several, read-write locks, semaphores, latches, waits in their order, leases, sessions,
``execute()`` of ``GET``, ``SET``, ``INCR`` and ``DEL``, and none of a server's faults, permissions or deadlocks.
"""

from __future__ import annotations

import contextlib
import itertools
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis

from ._hub import HUBS
from ._terms import Key, checked_key
from .outcome import LostReason

#: How many arguments an option has, if not one.
_ARGUMENTS = {**dict.fromkeys((b"READ", b"WRITE", b"SESSION", b"ONCE", b"ALL"), 0), b"NOTIFY": 2}
#: The kind of key of each mode.
_KINDS = {"exclusive": "lock", "read": "both", "write": "both", "permit": "semaphore", "latch": "latch"}
_FOREVER = float("inf")


class _Refusal(Exception):
    """An error reply."""


@dataclass(eq=False)
class _Request:
    """A request, while it waits and while it holds its keys."""

    connection: Any
    keys: list[bytes]
    owner: bytes
    options: dict[bytes, Any]
    mode: str
    #: When it began to wait, or to hold, and until when it does.
    since: float
    until: float = _FOREVER
    tokens: list[int] = field(default_factory=list)


class LockServer(socketserver.ThreadingTCPServer):
    """The double. Its clock is that of the machine, and what the test adds by :meth:`advance`.

    :param replicas: how many replicas have each grant at once (``replicas=`` of the locks).
    """

    daemon_threads = True

    def __init__(self, replicas: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.replicas = replicas
        self._guard = threading.RLock()
        self._skew = 0.0
        self._tokens = itertools.count(1)
        self._holds: list[_Request] = []
        self._waits: list[_Request] = []
        self._data: dict[bytes, bytes] = {}
        self._final: set[tuple[bytes, bytes]] = set()
        self._connections: set[_Connection] = set()
        self.port: int = self.server_address[1]
        #: For clients of any kind, and for :meth:`Server.open`.
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, args=(0.005,), name="redis-lock-double", daemon=True).start()

    def client(self, **options: Any) -> redis.Redis:
        """A client of it."""
        return redis.Redis(host="127.0.0.1", port=self.port, **options)

    def advance(self, seconds: float) -> None:
        """Moves the clock of the server, and of this process's holds. A lock that is renewed stays held, as if it had
        been renewed meanwhile; another one may end."""
        with self._guard:
            self._skew += seconds
            for hub, hold in self._held():
                hold._until -= seconds
                for one in self._holds:
                    one.until += seconds if hold.renews and one.owner == hold.claim.owner else 0
                if not hold.renews:
                    hold.term[1].steady -= seconds
                    hold.term[1].wall -= seconds
                    hold.lost_at -= seconds
                hold.lost_at = min(hold.lost_at, hold._until)
                hub.post(hub.plan, hold)
            self._settle()

    def lose(self, name: Key) -> None:
        """Ends the holds of a key, and tells those of this process at once."""
        key = checked_key(name)
        with self._guard:
            self._run(None, [b"DEL", key])
        for hub, hold in self._held():
            if key in hold.claim.keys:
                hub.post(hold.lose, LostReason.TAKEN)

    def close(self) -> None:
        """Ends all connections."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.request.shutdown(2)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _held(self) -> Iterator[tuple[Any, Any]]:
        hubs = [hub for one in list(HUBS) if one.name == f"127.0.0.1:{self.port}" for hub in one.all()]
        return ((hub, hold) for hub in hubs for hold in list(hub.holds))

    def _now(self) -> float:
        return time.monotonic() + self._skew

    def service_actions(self) -> None:
        """Called every few milliseconds: what is over ends."""
        with self._guard:
            self._settle()

    def _beside(self, key: bytes) -> list[_Request]:
        return [hold for hold in self._holds if key in hold.keys]

    def _fits(self, one: _Request) -> bool:
        beside, number = self._beside(one.keys[0]), int(self._data.get(one.keys[0], 0))
        if one.mode == "latch":
            return number == 0
        if one.mode == "permit":
            return sum(map(_count, [one, *beside])) <= number
        beside = [hold for key in one.keys for hold in self._beside(key) if hold.owner != one.owner]
        return not beside or (one.mode == "read" and all(hold.mode == "read" for hold in beside))

    def _grant(self, one: _Request) -> Any:
        if one.mode == "latch":
            return [1]
        one.since, one.until = self._now(), self._end_of(one)
        one.tokens = []
        # Each key is held by itself, and each mode of it.
        for key in one.keys:
            same, own = self._own(one, key, one.mode), self._own(one, key, "write")
            # Who writes reads under the same token.
            known = same or (own if one.mode == "read" else [])
            token = known[0].tokens[0] if known else next(self._tokens)
            one.tokens.append(token)
            if not same:
                hold = _Request(one.connection, [key], one.owner, one.options, one.mode, one.since, one.until, [token])
                self._holds.append(hold)
        return one.tokens

    def _end_of(self, one: _Request) -> float:
        return _FOREVER if b"SESSION" in one.options else self._now() + _lease(one.options)

    def _own(self, one: _Request, key: bytes, mode: str) -> list[_Request]:
        return [hold for hold in self._beside(key) if (hold.owner, hold.mode) == (one.owner, mode)]

    def _settle(self) -> None:
        """Ends what is over, and grants to those that wait, in their order."""
        self._holds = [hold for hold in self._holds if hold.until > self._now()]
        passed: set[bytes] = set()
        for one in list(self._waits):
            said = b"timeout" if one.until <= self._now() else b""
            if self._fits(one) and not passed & set(one.keys):
                said = b"granted %d" % self._grant(one)[0]
            if not said:
                passed |= set(one.keys)
                continue
            self._waits.remove(one)
            channel, tag = one.options[b"NOTIFY"]
            for connection in [each for each in self._connections if channel in each.channels]:
                connection.send([b"message", channel, said + b" " + tag], b">")

    def _ask(self, one: _Request) -> Any:
        """A request: what it is granted, QUEUED, or None."""
        if one.mode in ("exclusive", "read", "write") and any(key in self._data for key in one.keys):
            raise _Refusal("WRONGTYPE the key holds no lock")
        if any(_KINDS[hold.mode] != _KINDS[one.mode] for key in one.keys for hold in self._beside(key)):
            code = "LOCKTYPE" if one.mode in ("exclusive", "read", "write") else "WRONGTYPE"
            raise _Refusal(f"{code} the key holds another kind of lock")
        if b"LIMIT" in one.options:
            self._data.setdefault(one.keys[0], one.options[b"LIMIT"])
        if b"SEQ" in one.options and any((key, one.owner) in self._final for key in one.keys):
            return None
        own = [hold for key in one.keys for hold in self._own(one, key, one.mode)]
        if len(own) == len(one.keys):
            for hold in own:
                hold.connection, hold.until = one.connection, self._end_of(one)
            return [hold.tokens[0] for hold in own]
        same = [wait for wait in self._waits if one.owner and (wait.owner, wait.keys) == (one.owner, one.keys)]
        before = [wait for wait in self._waits if set(wait.keys) & set(one.keys) and wait not in same]
        if not same and not before and self._fits(one):
            return self._grant(one)
        if b"BLOCK" not in one.options:
            return None
        if not same and len(before) >= float(one.options.get(b"QUEUE", _FOREVER)):
            raise _Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already")
        block = int(one.options[b"BLOCK"])
        one.until = self._now() + block / 1000 if block else _FOREVER
        place = self._waits.index(same[0]) if same else len(self._waits)
        self._waits[place : place + len(same)] = [one]
        return b"QUEUED"

    def _run(self, connection: Any, words: list[bytes]) -> Any:
        with self._guard:
            self._settle()
            try:
                return self._answer(connection, words[0].decode().upper(), *words[1:])
            except _Refusal as refusal:
                return refusal
            except ValueError:
                return _Refusal("ERR value is not an integer or out of range")
            finally:
                self._settle()

    def _answer(self, connection: Any, name: str, key: bytes = b"", *words: bytes) -> Any:
        family, _, verb = name.partition(".")
        data, now = self._data, self._now()
        if verb in ("ACQUIRE", "MACQUIRE"):
            number = int(key) if verb == "MACQUIRE" else 0
            keys, words = ([*words[:number]], words[number:]) if number else ([key], words)
            options = _options(words[1:])
            mode = "permit" if family == "SEM" else _mode(options) or "exclusive"
            reply = self._ask(_Request(connection, keys, words[0], options, mode, now))
            return reply if number or not isinstance(reply, list) else reply[0]
        if verb in ("RENEW", "RELEASE"):
            return self._change(verb == "RENEW", key, words[0], _options(words[1:]))
        if name == "LOCK.IF":
            if not any(words[0] == b"%d" % hold.tokens[0] for hold in self._beside(key)):
                raise _Refusal("FENCED the lock is not held under this token")
            return self._answer(connection, words[1].decode().upper(), *words[2:])
        if verb == "INFO":
            return self._info(family, key)
        if name == "LATCH.WAIT":
            reply = self._ask(_Request(connection, [key], b"", _options(words), "latch", now))
            return reply[0] if isinstance(reply, list) else reply or 0
        if name in ("GET", "INCR") and self._beside(key):
            raise _Refusal("WRONGTYPE Operation against a key holding the wrong kind of value")
        if verb == "DOWN" or name == "INCR":
            number = int(data.get(key, 0))
            number = number + 1 if name == "INCR" else max(0, number - int(words[0] if words else 1))
            data[key] = b"%d" % number
            return number
        if name == "SET" and len(words) > 1:
            condition = words[1].upper()
            if len(words) > 2 or condition not in (b"NX", b"XX"):
                raise _Refusal("ERR syntax error: the double knows NX and XX alone")
            if (condition == b"XX") != bool(self._beside(key) or key in data):
                return None
        if verb == "SET" or name == "SET":
            data[key] = words[0]
        elif name == "GET":
            return data.get(key)
        elif name == "DEL":
            keys = [key, *words]
            found = sum(bool(self._beside(each) or each in data) for each in set(keys))
            for each in keys:
                data.pop(each, None)
            self._holds = [hold for hold in self._holds if hold.keys[0] not in keys]
            return found
        elif name == "EXISTS":
            return sum(bool(self._beside(each) or each in data) for each in (key, *words))
        elif name == "WAIT":
            return self.replicas
        elif name == "HELLO":
            connection.protocol = int(key)
            return {b"proto": int(key), b"version": b"7.0.0"}
        elif name == "SUBSCRIBE":
            connection.channels.add(key)
            return [b"subscribe", key, 1]
        elif name not in ("PING", "CLIENT", "SELECT"):
            raise _Refusal(f"ERR unknown command '{name}'")
        return "OK"

    def _change(self, renews: bool, key: bytes, owner: bytes, options: dict[bytes, Any]) -> Any:
        mode, token = _mode(options), options.get(b"TOKEN")
        own = [hold for hold in self._beside(key) if hold.owner == owner and mode in ("", hold.mode)]
        own = [hold for hold in own if token in (None, b"%d" % hold.tokens[0])]
        if renews:
            for hold in own:
                hold.options.update(options)
                if b"PX" in options:
                    hold.connection, hold.until = None, self._now() + _lease(options)
            return int(bool(own))
        waits = [wait for wait in self._waits if token is None and wait.owner == owner and key in wait.keys]
        if b"FINAL" in options:
            self._final.add((key, owner))
        self._holds = [hold for hold in self._holds if hold not in own]
        self._waits = [wait for wait in self._waits if wait not in waits]
        return 1 if own or waits else None

    def _info(self, family: str, key: bytes) -> Any:
        now, holds = self._now(), self._beside(key)
        waits = [wait for wait in self._waits if key in wait.keys]
        longest = int((now - waits[0].since) * 1000) if waits else 0
        queue = [b"waiters", len(waits), b"longest-wait-ms", longest]
        if family == "SEM":
            permits, held = int(self._data.get(key, 0)), sum(map(_count, holds))
            return [b"permits", permits, b"free", permits - held, b"held", held, *queue] if key in self._data else None
        found = []
        for hold in holds:
            rest = int(1000 * (10 if hold.until == _FOREVER else hold.until - now))
            found.append([b"owner", hold.owner, b"token", hold.tokens[0], b"holds", 1, b"pttl", rest])
            found[-1] += [b"held-ms", int((now - hold.since) * 1000), b"note", hold.options.get(b"NOTE")]
        # Who reads and writes, writes.
        mode = max((one.mode for one in holds or waits), default="")
        return [b"mode", mode.encode(), b"holders", found, *queue] if mode else None


class _Connection(socketserver.StreamRequestHandler):
    """A connection of a client."""

    def handle(self) -> None:
        self.channels: set[bytes] = set()
        self.protocol = 2
        double: Any = self.server
        double._connections.add(self)
        with contextlib.suppress(OSError, ValueError):
            while True:
                number = int(self.rfile.readline()[1:])
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(number)]
                with double._guard:
                    self.send(double._run(self, words))
        with double._guard:
            double._connections.discard(self)
            # What was bound to it ends.
            double._holds = [one for one in double._holds if one.connection is not self or one.until < _FOREVER]

    def send(self, reply: Any, kind: bytes = b"*") -> None:
        """Sends a reply, or a message."""
        with contextlib.suppress(OSError):
            self.request.sendall(self._encoded(reply, kind if self.protocol == 3 else b"*"))

    def _encoded(self, reply: Any, kind: bytes = b"*") -> bytes:
        if isinstance(reply, list):
            return b"%s%d\r\n" % (kind, len(reply)) + b"".join(map(self._encoded, reply))
        if isinstance(reply, dict):
            return b"%%%d\r\n" % len(reply) + b"".join(map(self._encoded, itertools.chain(*reply.items())))
        if isinstance(reply, bytes):
            return b"$%d\r\n%s\r\n" % (len(reply), reply)
        if isinstance(reply, int):
            return b":%d\r\n" % reply
        if reply is None:
            return b"_\r\n" if self.protocol == 3 else b"$-1\r\n"
        return f"{'-' if isinstance(reply, _Refusal) else '+'}{reply}\r\n".encode()


def _options(words: tuple[bytes, ...]) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    rest = iter(words)
    for word in rest:
        values = list(itertools.islice(rest, _ARGUMENTS.get(word.upper(), 1)))
        found[word.upper()] = values[0] if len(values) == 1 else values
    return found


def _mode(options: dict[bytes, Any]) -> str:
    return next((word.decode().lower() for word in (b"READ", b"WRITE") if word in options), "")


def _lease(options: dict[bytes, Any]) -> float:
    return int(options.get(b"PX", 30_000)) / 1000


def _count(one: _Request) -> int:
    return int(one.options.get(b"COUNT", 1))
