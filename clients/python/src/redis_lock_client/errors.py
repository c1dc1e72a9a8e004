"""Errors of requests.

Each error is an :class:`Error`, and also the class that a program written for redis-py expects: a refusal is a
``redis.exceptions.ResponseError``, a broken connection a ``redis.exceptions.ConnectionError``, a lock that is not
acquired or not owned a ``redis.exceptions.LockError``. A lock that another owner holds is no error.

Messages name the server as ``host:port``. They have no password, no user, and no owner, which is a credential.
"""

from __future__ import annotations

from typing import Any, Optional, Union

from redis import exceptions as redis_errors

#: Codes of refusals that may pass when the same request is repeated.
_PASSING = frozenset({"TRYAGAIN", "BUSY", "LOCKDELAY", "LOCKBUSY", "NOREPLICAS", "OOM", "MISCONF"})
#: Codes of a server that does not serve such requests at present, while another one may.
_ELSEWHERE = frozenset({"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED"})

#: How the names of the module's commands begin.
_OF_MODULE = ("LOCK.", "SEM.", "LATCH.")

#: The kinds of errors in redis-py 7 and later.
_TYPES: Any = getattr(redis_errors, "ExceptionType", None)

Name = Union[str, bytes, None]


class Error(Exception):
    """The base class of the errors of this package."""

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

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be served when it is repeated later."""
        return False


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

    def __str__(self) -> str:
        return f"{self.server}: {self.code} {self.text}"

    @property
    def is_passing(self) -> bool:
        return self.is_elsewhere or self.code in _PASSING

    @property
    def is_elsewhere(self) -> bool:
        """Whether this server does not serve such requests at present, while another one may."""
        return self.code in _ELSEWHERE


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
    """``LOCKBUSY``: the limit of waiters, tickets or bound holds is reached, or ``lock.drain`` is on."""


class LockBroken(Refused):
    """``LOCKBROKEN``: an operator has ended the wait (``LOCK.BREAK ... PURGE``)."""


class LockDelay(Refused):
    """``LOCKDELAY``: the server has just started and grants no lock yet (``lock.startup-delay``)."""


class ConnectionFailed(Error, redis_errors.ConnectionError):
    """The server cannot be reached. The error of the system is the ``__cause__``."""

    def __init__(self, server: str, what: str) -> None:
        Error.__init__(self, server, what)
        self.server = server
        self.what = what

    def __str__(self) -> str:
        return f"{self.server}: {self.what}"

    @property
    def is_passing(self) -> bool:
        return True


class NoAnswer(ConnectionFailed, redis_errors.TimeoutError):
    """The server did not answer in time."""

    def __init__(self, server: str, what: str = "no answer in time") -> None:
        super().__init__(server, what)


class Unheard(ConnectionFailed):
    """The request was sent and got no reply: it may have been served. It is not repeated (:meth:`Latch.count_down`)."""

    def __str__(self) -> str:
        return f"{self.server}: {self.what}; the request may have been served"

    @property
    def is_passing(self) -> bool:
        return False


class Untrusted(ConnectionFailed):
    """One side does not accept the other's certificate; repeating the request does not help."""

    def __init__(self, server: str, what: str = "the certificate is not believed") -> None:
        super().__init__(server, what)

    @property
    def is_passing(self) -> bool:
        return False


class ConfigError(Error, ValueError):
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


_CLASSES: dict[str, type[Refused]] = {
    "DEADLOCK": Deadlock,
    "NOPERM": NoPermission,
    "NOAUTH": NotAuthenticated,
    "WRONGPASS": NotAuthenticated,
    "WRONGTYPE": WrongType,
    "LOCKTYPE": WrongType,
    "LOCKBUSY": LockBusy,
    "LOCKBROKEN": LockBroken,
    "LOCKDELAY": LockDelay,
}


def is_code(word: str) -> bool:
    """Whether this word of a server's error is a code that has a meaning here."""
    return word in _CLASSES or word in _PASSING or word in _ELSEWHERE or word in ("ERR", "NOPROTO")


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
    if "max number of clients reached" in line:
        # Other clients may disconnect.
        return ConnectionFailed(server, "no room for one more client (maxclients)")
    return refused(server, code, text)


def _unknown_command(server: str, command: str) -> Error:
    if command.upper().startswith(_OF_MODULE):
        return NotLoaded(server, command)
    if command.upper() == "SENTINEL":
        return ConfigError(f"{server} is no sentinel")
    # The rest of the text quotes the arguments, which may have an owner.
    return refused(server, "ERR", f"unknown command '{command}'")


def bad_reply(server: str) -> ConnectionFailed:
    """The error for a reply that the module never gives."""
    return ConnectionFailed(server, "a reply that is none of the module's")
