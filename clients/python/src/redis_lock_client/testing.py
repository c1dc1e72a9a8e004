"""A double of a server with the module, for unit tests: in this process, on the loopback interface.

The real package runs above it::

    with LockServer() as server:
        lock = Lock(server.client(), "k", timeout=10)
        lock.acquire()
        server.advance(11)
        assert lock.lost.wait(1)

It has locks of one key and several, read-write locks, semaphores, waits in their order, leases, sessions, ``execute()``
of ``GET``, ``SET``, ``INCR`` and ``DEL``; no latches, and none of a server's faults, permissions or deadlocks.
"""

from __future__ import annotations

import contextlib
import itertools
import socketserver
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional

import redis

from ._hub import HUBS
from ._terms import Key, checked_key
from .outcome import LostReason

#: How many arguments an option has.
_ARGUMENTS = {b"READ": 0, b"WRITE": 0, b"SESSION": 0, b"ONCE": 0, b"ALL": 0, b"NOTIFY": 2}
_ARGUMENTS.update(dict.fromkeys(b"PX BLOCK SEQ FINAL TOKEN NOTE QUEUE LIMIT COUNT".split(), 1))
#: The kind of key of each mode.
_KINDS = {"exclusive": "lock", "read": "both", "write": "both", "permit": "semaphore"}
_FOREVER = float("inf")


class _Refusal(ValueError):
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
    token: int = 0


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

    def server_close(self) -> None:
        """Ends all connections, as the end of a ``with`` statement does."""
        self.shutdown()
        super().server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.request.shutdown(2)

    def _held(self) -> Iterator[tuple[Any, Any]]:
        hubs = [hub for one in list(HUBS) if one.name == f"127.0.0.1:{self.port}" for hub in one.all()]
        return ((hub, hold) for hub in hubs for hold in list(hub.holds))

    def _now(self) -> float:
        return time.monotonic() + self._skew

    def service_actions(self) -> None:
        """Called every few milliseconds: what is over ends."""
        with self._guard:
            self._settle()

    def _of(self, key: bytes, owner: Optional[bytes] = None, mode: str = "") -> list[_Request]:
        """The holds of a key, or those of an owner, or those in one mode."""
        of_key = (hold for hold in self._holds if key in hold.keys)
        return [hold for hold in of_key if owner in (None, hold.owner) and mode in ("", hold.mode)]

    def _is_free(self, one: _Request) -> bool:
        if one.mode == "permit":
            return sum(map(_count, [one, *self._of(one.keys[0])])) <= int(self._data.get(one.keys[0], 0))
        others = [hold for key in one.keys for hold in self._of(key) if hold.owner != one.owner]
        return not others or (one.mode == "read" and all(hold.mode == "read" for hold in others))

    def _grant(self, one: _Request) -> list[int]:
        tokens = []
        # Each key is held by itself, and each mode of it.
        for key in one.keys:
            own = self._of(key, one.owner, one.mode)
            # Readers share a token, and who writes reads under the same one.
            known = self._of(key) if one.mode == "read" else own
            tokens.append(known[0].token if known else next(self._tokens))
            if not own:
                own = [replace(one, keys=[key], since=self._now(), token=tokens[-1])]
                self._holds += own
            own[0].connection, own[0].until = one.connection, self._end_of(one)
        return tokens

    def _end_of(self, one: _Request) -> float:
        return _FOREVER if b"SESSION" in one.options else self._now() + int(one.options.get(b"PX", 30_000)) / 1000

    def _settle(self) -> None:
        """Ends what is over, and grants to those that wait, in their order."""
        self._holds = [hold for hold in self._holds if hold.until > self._now()]
        passed: set[bytes] = set()
        for one in list(self._waits):
            is_next = self._is_free(one) and not passed & set(one.keys)
            if not is_next and one.until > self._now():
                passed |= set(one.keys)
                continue
            self._waits.remove(one)
            said = b"granted %d " % self._grant(one)[0] if is_next else b"timeout "
            channel, tag = one.options[b"NOTIFY"]
            for connection in [each for each in self._connections if channel in each.channels]:
                connection.send([b"message", channel, said + tag], b">")

    def _ask(self, one: _Request) -> Any:
        """A request: what it is granted, QUEUED, or None."""
        is_lock, options = one.mode != "permit", one.options
        if is_lock and any(key in self._data for key in one.keys):
            raise _Refusal("WRONGTYPE the key holds no lock")
        if any(_KINDS[hold.mode] != _KINDS[one.mode] for key in one.keys for hold in self._of(key)):
            raise _Refusal(f"{'LOCKTYPE' if is_lock else 'WRONGTYPE'} the key holds another kind of lock")
        if b"LIMIT" in options:
            self._data.setdefault(one.keys[0], options[b"LIMIT"])
        if b"SEQ" in options and any((key, one.owner) in self._final for key in one.keys):
            return None
        same = [wait for wait in self._waits if (wait.owner, wait.keys) == (one.owner, one.keys)]
        before = [wait for wait in self._waits if set(wait.keys) & set(one.keys) and wait not in same]
        is_held = all(self._of(key, one.owner, one.mode) for key in one.keys)
        if is_held or (not same and not before and self._is_free(one)):
            return self._grant(one)
        if b"BLOCK" not in options:
            return None
        if not same and len(before) >= float(options.get(b"QUEUE", _FOREVER)):
            raise _Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already")
        one.until = self._now() + (int(options[b"BLOCK"]) / 1000 or _FOREVER)
        place = self._waits.index(same[0]) if same else len(self._waits)
        self._waits[place : place + len(same)] = [one]
        return b"QUEUED"

    def _run(self, connection: Any, words: list[bytes]) -> Any:
        with self._guard:
            self._settle()
            try:
                return self._answer(connection, words[0].decode().upper(), *words[1:])
            except ValueError as error:
                return error if isinstance(error, _Refusal) else _Refusal("ERR value is not an integer or out of range")
            finally:
                self._settle()

    def _answer(self, connection: Any, name: str, key: bytes = b"", *words: bytes) -> Any:
        family, _, verb = name.partition(".")
        if verb in ("ACQUIRE", "MACQUIRE"):
            number = int(key) if verb == "MACQUIRE" else 0
            keys, words = ([*words[:number]], words[number:]) if number else ([key], words)
            options = _options(words[1:])
            mode = "permit" if family == "SEM" else _mode(options) or "exclusive"
            reply = self._ask(_Request(connection, keys, words[0], options, mode, self._now()))
            return reply[0] if isinstance(reply, list) and not number else reply
        if verb in ("RENEW", "RELEASE"):
            return self._change(verb == "RENEW", key, words[0], _options(words[1:]))
        if name == "LOCK.IF":
            if not any(words[0] == b"%d" % hold.token for hold in self._of(key)):
                raise _Refusal("FENCED the lock is not held under this token")
            return self._answer(connection, words[1].decode().upper(), *words[2:])
        if verb == "INFO":
            return self._info(family, key)
        if name == "HELLO":
            connection.protocol = int(key)
            return {b"proto": connection.protocol, b"version": b"7.0.0"}
        if name == "SUBSCRIBE":
            connection.channels.add(key)
            return [b"subscribe", key, 1]
        if name in ("WAIT", "LATCH.WAIT"):
            return self.replicas if name == "WAIT" else 1  # no latch is closed
        return "OK" if name in ("PING", "CLIENT", "SELECT") else self._of_data(name, key, *words)

    def _of_data(self, name: str, key: bytes, *words: bytes) -> Any:
        data = self._data
        if name in ("GET", "INCR") and self._of(key):
            raise _Refusal("WRONGTYPE Operation against a key holding the wrong kind of value")
        if name == "INCR":
            data[key] = b"%d" % (int(data.get(key, 0)) + 1)
            return int(data[key])
        if name in ("SET", "SEM.SET"):
            if words[1:] and (len(words) > 2 or words[1].upper() not in (b"NX", b"XX")):
                raise _Refusal("ERR syntax error: the double knows NX and XX alone")
            if words[1:] and (words[1].upper() == b"XX") != bool(self._of(key) or key in data):
                return None
            data[key] = words[0]
            return "OK"
        if name == "GET":
            return data.get(key)
        if name not in ("DEL", "EXISTS"):
            raise _Refusal(f"ERR unknown command '{name}'")
        found = [each for each in {key, *words} if self._of(each) or each in data]
        if name == "DEL":
            self._data = {each: value for each, value in data.items() if each not in found}
            self._holds = [hold for hold in self._holds if hold.keys[0] not in found]
        return len(found)

    def _change(self, renews: bool, key: bytes, owner: bytes, options: dict[bytes, Any]) -> Any:
        token = options.get(b"TOKEN")
        own = [hold for hold in self._of(key, owner, _mode(options)) if token in (None, b"%d" % hold.token)]
        if renews:
            for hold in own:
                hold.options.update(options)
                if b"PX" in options:
                    hold.options.pop(b"SESSION", None)
                    hold.connection, hold.until = None, self._end_of(hold)
            return int(bool(own))
        waits = [wait for wait in self._waits if token is None and wait.owner == owner and key in wait.keys]
        if b"FINAL" in options:
            self._final.add((key, owner))
        self._holds = [hold for hold in self._holds if hold not in own]
        self._waits = [wait for wait in self._waits if wait not in waits]
        return 1 if own or waits else None

    def _info(self, family: str, key: bytes) -> Any:
        now, holds = self._now(), self._of(key)
        waits = [wait for wait in self._waits if key in wait.keys]
        queue = [b"waiters", len(waits), b"longest-wait-ms", int((now - waits[0].since) * 1000) if waits else 0]
        if family == "SEM":
            permits, held = int(self._data.get(key, 0)), sum(map(_count, holds))
            return [b"permits", permits, b"free", permits - held, b"held", held, *queue] if key in self._data else None
        found = []
        for hold in holds:
            rest = int(1000 * (10 if hold.until == _FOREVER else hold.until - now))
            found.append([b"owner", hold.owner, b"token", hold.token, b"holds", 1, b"pttl", rest])
            found[-1] += [b"held-ms", int((now - hold.since) * 1000), b"note", hold.options.get(b"NOTE")]
        # Who reads and writes, writes. Of a lock without a holder it is what its first waiter asks for.
        mode = max((one.mode for one in holds or waits[:1]), default="")
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


def _options(words: Iterable[bytes]) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    rest = iter(words)
    for word in map(bytes.upper, rest):
        if word not in _ARGUMENTS:
            raise _Refusal("ERR syntax error")
        values = list(itertools.islice(rest, _ARGUMENTS[word]))
        found[word] = values[0] if len(values) == 1 else values
    return found


def _mode(options: dict[bytes, Any]) -> str:
    return next((word.decode().lower() for word in (b"READ", b"WRITE") if word in options), "")


def _count(one: _Request) -> int:
    return int(one.options.get(b"COUNT", 1))
