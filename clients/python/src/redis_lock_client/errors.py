"""Errors of requests.

Each error is an :class:`Error`, and also the class that a program written for redis-py expects: a refusal is a
``redis.exceptions.ResponseError``, a broken connection a ``redis.exceptions.ConnectionError``, a lock that is not
acquired or not owned a ``redis.exceptions.LockError``. A lock that another owner holds is no error.

Messages name the server as ``host:port``. They have no password, no user, and no owner, which is a credential.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Optional, Union

from redis import exceptions as redis_errors

#: Codes of refusals that may pass when the same request is repeated.
_PASSING = {
    *("TRYAGAIN", "BUSY", "LOCKDELAY", "LOCKBUSY", "NOREPLICAS", "OOM", "MISCONF", "LOADING", "CLUSTERDOWN"),
    *("MASTERDOWN", "UNBLOCKED", "MOVED", "ASK", "READONLY", "NOSUBSCRIBER"),
}

#: How the names of the module's commands begin.
_OF_MODULE = ("LOCK.", "SEM.", "LATCH.")

#: The kinds of errors in redis-py 7 and later.
_TYPES: Any = getattr(redis_errors, "ExceptionType", None)

Name = Union[str, bytes, None]


class Error(Exception):
    """The base class of the errors of this package."""

    #: Whether the same request may be served when it is repeated later.
    is_passing = False

    def __init__(self, *args: Any) -> None:
        # Not those of redis-py's classes, which take other arguments, and differ from version to version.
        Exception.__init__(self, *args)
        if _TYPES is not None:
            # Read by redis-py 7 and later for its metrics.
            is_network = isinstance(self, (redis_errors.ConnectionError, redis_errors.TimeoutError))
            self.error_type = _TYPES.NETWORK if is_network else _TYPES.SERVER
            self.status_code: Optional[str] = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class NotLoaded(Error, redis_errors.ResponseError):
    """The server does not know the module's commands, or an older module not all of them."""

    def __init__(self, server: str, command: str) -> None:
        Error.__init__(self, server, command)
        self.server = server
        self.command = command

    def __str__(self) -> str:
        return (
            f"{self.server} does not know {self.command}: load the module there (or a newer one), with `loadmodule "
            "/usr/lib/redis/modules/libredis_lock.so` in its configuration, or with MODULE LOAD"
        )


class Refused(Error, redis_errors.ResponseError):
    """The server refused the request, with this ``code`` (its first word) and ``text`` (the rest)."""

    def __init__(self, server: str, code: str, text: str) -> None:
        Error.__init__(self, server, code, text)
        self.server = server
        self.code = code
        self.text = text
        self.is_passing = code in _PASSING

    def __str__(self) -> str:
        return f"{self.server}: {self.code} {self.text}"


class Deadlock(Refused):
    """``DEADLOCK``: the request would wait for itself."""


class NoPermission(Refused, redis_errors.NoPermissionError):
    """``NOPERM``: the user may not run the command, or not on this key."""


class NotAuthenticated(Refused, redis_errors.AuthenticationError):
    """``NOAUTH`` or ``WRONGPASS``: the login is missing or wrong."""


class WrongType(Refused, redis_errors.LockError):
    """``WRONGTYPE`` or ``LOCKTYPE``: the key holds something else than a lock that can be taken in this mode."""

    lock_name: Any = None
    #: ``None``: the text is ``str(error)``.
    message: Any = None


class LockBusy(Refused):
    """``LOCKBUSY``: the limit of waiters, tickets or bound holds is reached."""


class QueueFull(Refused):
    """``QUEUEFULL``: as many requests as ``queue=`` allows wait already. The request left nothing."""


class LockBroken(Refused):
    """``LOCKBROKEN``: an operator has ended the wait (``LOCK.BREAK ... PURGE``)."""


class LockDelay(Refused):
    """``LOCKDELAY``: the server has just started and grants no lock yet (``lock.startup-delay``)."""


class ConnectionFailed(Error, redis_errors.ConnectionError):
    """The server cannot be reached. The error of the system is the ``__cause__``."""

    is_passing = True
    _what = "no connection"

    def __init__(self, server: str, what: Optional[str] = None) -> None:
        Error.__init__(self, server, what)
        self.server = server
        self.what = what or self._what

    def __str__(self) -> str:
        return f"{self.server}: {self.what}"


class NoAnswer(ConnectionFailed, redis_errors.TimeoutError):
    """The server did not answer in time."""

    _what = "no answer in time"


class Late(Error):
    """A request is not sent again, since its time is over. No error of redis-py, which would repeat that one."""


class Unheard(ConnectionFailed):
    """The request was sent and got no reply: it may have been served. It is not repeated (:meth:`Latch.count_down`)."""

    is_passing = False

    def __str__(self) -> str:
        return f"{self.server}: {self.what}; the request may have been served"


class Untrusted(ConnectionFailed):
    """One side does not accept the other's certificate; repeating the request does not help."""

    is_passing = False
    _what = "the certificate is not believed"


class ConfigError(Error, redis_errors.DataError, ValueError):
    """An argument is invalid. Nothing was sent."""


class Closed(Error, RuntimeError):
    """The :class:`Server` was closed, before the call or during it."""


class _OfLock(Error, redis_errors.LockError):
    """An error that names its lock, as those of redis-py do."""

    message: Any
    lock_name: Any

    def __init__(self, message: str, lock_name: Name = None) -> None:
        Error.__init__(self, message, lock_name)
        self.message = message
        self.lock_name = lock_name

    def __str__(self) -> str:
        return str(self.message)


class NotAcquired(_OfLock):
    """A ``with`` statement did not get the lock in time, or a method needs a lock that is held."""


class NotOwned(_OfLock, redis_errors.LockNotOwnedError):
    """The lock is not held any more under the token of this object."""


class NotReplicated(_OfLock):
    """Fewer replicas than wanted had the grant in time (``replicas=``): ``wanted``, ``had``. Nothing is held."""

    def __init__(self, wanted: int, had: int, within: float, lock_name: Name = None) -> None:
        message = f"{had} of {wanted} replicas have the grant within {within * 1000:.0f} ms"
        super().__init__(message, lock_name)
        self.args = (wanted, had, within, lock_name)
        self.wanted = wanted
        self.had = had


class NoSemaphore(_OfLock):
    """No client has created the semaphore (``limit=``, :meth:`Semaphore.set`), so it has no permits."""


_CLASSES: dict[str, type[Refused]] = {
    "DEADLOCK": Deadlock,
    "NOPERM": NoPermission,
    "NOAUTH": NotAuthenticated,
    "WRONGPASS": NotAuthenticated,
    "WRONGTYPE": WrongType,
    "LOCKTYPE": WrongType,
    "LOCKBUSY": LockBusy,
    "QUEUEFULL": QueueFull,
    "LOCKBROKEN": LockBroken,
    "LOCKDELAY": LockDelay,
}


def refused(server: str, code: str, text: str) -> Refused:
    """The error for a code of the server."""
    if code == "NOPERM" and text.startswith("User "):
        # Redis from 7.2 on names the user.
        text = "this user " + text.split(" ", 2)[-1]
    return _CLASSES.get(code, Refused)(server, code, text)


def of_reply(server: str, line: str) -> Error:
    """The error for an error reply, its text without the leading ``-``."""
    code, _, text = line.partition(" ")
    if code == "ERR" and text.lower().startswith("unknown command"):
        quoted = text.replace("`", "'").split("'")
        return _unknown_command(server, quoted[1] if len(quoted) > 1 else "LOCK.ACQUIRE")
    return refused(server, code, text)


#: The codes that redis-py takes off the text of an error, by the name of its class.
_CODES = {
    "AskError": "ASK",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


def of_redis(server: str, error: BaseException) -> Error:
    """The error of this package for one of redis-py. (An error of the login is a ``ConnectionError`` there.)"""
    if isinstance(error, Late):
        return NoAnswer(server)
    if isinstance(error, Error):
        return error
    text, name = str(error), type(error).__name__
    if name == "AskError" or name == "MovedError":
        text = "the slot is served by another node"
    if "TTL exhausted" in text:
        # redis-py has followed too many redirections.
        return refused(server, "TRYAGAIN", "the slot is on its way to another node")
    if isinstance(error, redis_errors.AuthenticationError):
        code = getattr(error, "status_code", None) or _code_of_login(text)
        return refused(
            server, code, "the server refuses the login" if code != "ERR" else "the login was not understood"
        )
    if name in _CODES:
        return refused(server, _CODES[name], text)
    if isinstance(error, redis_errors.ResponseError):
        code = text.partition(" ")[0]
        is_code = code.isupper() and code.isalpha() and len(code) > 2
        # redis-py takes the code ERR off.
        return of_reply(server, text if is_code else f"ERR {text}")
    if isinstance(error, (redis_errors.TimeoutError, TimeoutError)):
        return NoAnswer(server, "no connection in time" if "connecting" in text else None)
    if "certificate verify failed" in text:
        return Untrusted(server, f"{text}: the certificate is not trusted")
    if isinstance(error, (redis_errors.RedisError, OSError)) or name.endswith("ClusterException"):
        return ConnectionFailed(server, (text or name) + _words_of_system(error, text))
    # A credential provider of the program: its text may be a secret.
    return ConnectionFailed(server, f"the client raised {name}")


def _code_of_login(text: str) -> str:
    if text.startswith(("WRONGPASS", "invalid")):
        return "WRONGPASS"
    return "ERR" if "without any password" in text or "no password is set" in text else "NOAUTH"


def _words_of_system(error: BaseException, text: str) -> str:
    """Why a connection failed, if redis-py does not say it: for asyncio it has the number alone."""
    below = error.__cause__ or error.__context__
    if not isinstance(below, OSError) or isinstance(below, ssl.SSLError) or not below.errno:
        return ""
    # What is not of the system (names of hosts) has a negative number.
    words = os.strerror(below.errno) if below.errno > 0 else str(below.strerror)
    return "" if words in text else f" ({words})"


def _unknown_command(server: str, command: str) -> Error:
    if command.upper().startswith(_OF_MODULE):
        return NotLoaded(server, command)
    # The rest of the text quotes the arguments, which may have an owner.
    return refused(server, "ERR", f"unknown command '{command}'")


def bad_reply(server: str) -> ConnectionFailed:
    """The error for a reply that the module never gives."""
    return ConnectionFailed(server, "a reply that is none of the module's")
