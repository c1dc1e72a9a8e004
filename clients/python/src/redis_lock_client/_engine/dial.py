"""The opening of a connection by redis-py: the socket, TLS where the options ask for it, and the login."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import weakref
from dataclasses import dataclass
from typing import Any, Optional

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.credentials import CredentialProvider

from ..errors import ConfigError, ConnectionFailed, Error, NoAnswer, Refused, Untrusted, is_code, of_reply
from ..statistics import Statistics
from .bounds import within
from .forks import forks
from .link import Link, OnItem, cut_off
from .moment import now

#: Options of redis-py that are about its own requests, pools and parsers.
_NOT_FOR_LINKS = frozenset(
    {
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "health_check_interval",
        "parser_class",
        "socket_read_size",
        "decode_responses",
        "encoding",
        "encoding_errors",
        "encoder_class",
        "event_dispatcher",
        "himport_registry",
        "legacy_responses",
        "connection_pool",
        "socket_timeout",
        "socket_connect_timeout",
        "host",
        "port",
        "path",
    }
)
#: Options of the synchronous client that make a connection safer, and that its asyncio connections do not know.
_NEVER_DROPPED = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
#: The codes that redis-py's parsers cut off, by the class of the error.
_CODES = {
    redis_errors.NoPermissionError: "NOPERM",
    redis_errors.BusyLoadingError: "LOADING",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.MasterDownError: "MASTERDOWN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
}
#: How the texts of refused logins without their code begin, besides those of `WRONGPASS`.
_LOGIN_TEXTS = {
    "Authentication required": "NOAUTH",
    "HELLO must be called with the client already authenticated": "NOAUTH",
    "AUTH <password> called without any password configured": "ERR",
    "Client sent AUTH, but no password is set": "ERR",
}


@dataclass(frozen=True)
class Endpoint:
    """Where a node listens: a host and a port, or the path of a socket."""

    host: str
    port: int
    path: Optional[str] = None

    @property
    def name(self) -> str:
        """The name of the node in messages."""
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Login:
    """The class of redis-py that opens connections, and its options."""

    connection_class: type[AbstractConnection]
    options: dict[str, Any]

    def __repr__(self) -> str:
        # The options have the password.
        return f"Login({self.connection_class.__name__})"

    @staticmethod
    def of(connection_class: type[AbstractConnection], options: dict[str, Any]) -> Login:
        """The login of a client with these options of connections.

        :raises ConfigError: for an option that cannot be kept.
        """
        for name in _NEVER_DROPPED:
            if options.get(name):
                raise ConfigError(f"redis-py's asyncio connections do not know the option {name}")
        known = options_of(connection_class)
        kept = {name: value for name, value in options.items() if name in known and name not in _NOT_FOR_LINKS}
        for name in list(kept):
            if name.startswith(("maint", "orig_", "oss_")):
                del kept[name]
        provider = kept.get("credential_provider")
        if isinstance(provider, CredentialProvider):
            kept["credential_provider"] = _off_the_loop(provider)
        return Login(connection_class, kept)


class Dialer:
    """Opens connections for one server."""

    def __init__(self, patience: float, counts: Statistics) -> None:
        self.patience = patience
        self.counts = counts
        #: The open connections.
        self.links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._is_closed = False

    def close(self) -> None:
        """Closes all connections that are still open, and opens no other."""
        self._is_closed = True
        for link in list(self.links):
            link.close()

    def forget_sockets(self) -> None:
        """Closes this process's copies of the sockets, in a forked child: the parent's connections are to end with the
        parent. Nothing is sent."""
        for link in list(self.links):
            link.forget_socket()

    async def open(self, endpoint: Endpoint, login: Login, on_item: Optional[OnItem] = None) -> Link:
        """Opens a connection within the response timeout, and another one if the process has forked meanwhile: the
        child has a copy of the socket that it does not know of, which would keep the connection open after the parent.

        :raises Error: when the node cannot be reached or refuses the login.
        """
        end = now() + self.patience
        while True:
            ended = forks.ended
            link = await self._open(endpoint, login, on_item, max(0.0, end - now()))
            if forks.begun == ended:
                self.counts.connections += 1
                return link
            link.close()

    async def _open(self, endpoint: Endpoint, login: Login, on_item: Optional[OnItem], patience: float) -> Link:
        if self._is_closed:
            raise ConnectionFailed(endpoint.name, "the connections are closed")
        options = dict(login.options, socket_connect_timeout=self.patience, socket_timeout=self.patience)
        if issubclass(login.connection_class, UnixDomainSocketConnection):
            options["path"] = endpoint.path
        else:
            options["host"], options["port"] = endpoint.host, endpoint.port
        try:
            connection = login.connection_class(**options)
        except (redis_errors.RedisError, TypeError, ValueError) as error:
            raise ConfigError(f"{endpoint.name}: an option of the connection is invalid") from error
        try:
            await within(patience, _connect(connection), lambda _: _abandon(connection))
            return self._take_over(connection, endpoint.name, on_item)
        except asyncio.TimeoutError as error:
            raise NoAnswer(endpoint.name) from error
        except Error:
            raise
        except (redis_errors.RedisError, OSError) as error:
            failure = _failure(endpoint.name, error)
            # The text of a refusal may name the user.
            raise failure from (None if isinstance(failure, Refused) else error)
        except Exception as error:
            # Of a credential provider, or another function of the program: a wait survives it, as a refused connection.
            raise ConnectionFailed(endpoint.name, f"the login failed ({type(error).__name__})") from error
        finally:
            _abandon(connection)

    def _take_over(self, connection: AbstractConnection, name: str, on_item: Optional[OnItem]) -> Link:
        writer, reader = connection._writer, connection._reader
        if writer is None or reader is None or self._is_closed:
            raise ConnectionFailed(name, "the connection has ended")
        connection._writer = connection._reader = None
        link = Link(name, asyncio.get_running_loop(), on_item)
        link.adopt(writer, bytes(getattr(reader, "_buffer", b"")), self.patience)
        self.links.add(link)
        return link


async def _connect(connection: Any) -> None:
    try:
        await connection.connect()
    except BaseException:
        # Cancelled: this ends after `open`, and may have a socket by now.
        _abandon(connection)
        raise


def _abandon(connection: AbstractConnection) -> None:
    """Closes what redis-py has left open after a failure."""
    writer = connection._writer
    if writer is not None:
        cut_off(writer.transport)
        connection._writer = connection._reader = None


def options_of(connection_class: type[Any]) -> frozenset[str]:
    """The options that the constructors of this class accept."""
    names: set[str] = set()
    for one in connection_class.__mro__:
        if "__init__" in vars(one):
            init = inspect.unwrap(vars(one)["__init__"]) if inspect.isfunction(vars(one)["__init__"]) else None
            if init is not None:
                names.update(inspect.signature(init).parameters)
    return frozenset(names)


def _failure(name: str, error: Exception) -> Error:
    if any(isinstance(cause, ssl.SSLError) and _is_about_certificates(cause) for cause in _causes(error)):
        return Untrusted(name)
    text = str(error)
    if "max number of clients reached" in text:
        return of_reply(name, text)
    if isinstance(error, (redis_errors.ResponseError, *_CODES, redis_errors.AuthenticationError)):
        return _refusal(name, error, text)
    if isinstance(error, redis_errors.TimeoutError):
        return NoAnswer(name)
    return ConnectionFailed(name, "the connection failed")


def _refusal(name: str, error: Exception, text: str) -> Error:
    """The refusal of a login. redis-py cuts the code off the text of most, and only newer versions keep it."""
    first = text.partition(" ")[0]
    code = getattr(error, "status_code", None)
    if not code and is_code(first):
        code = first
    if not code and isinstance(error, redis_errors.AuthenticationError):
        code = next((code for start, code in _LOGIN_TEXTS.items() if text.startswith(start)), "WRONGPASS")
    for error_class, of_class in _CODES.items():
        if not code and isinstance(error, error_class):
            code = of_class
    code = code or "ERR"
    return of_reply(name, text if first == code else f"{code} {text}")


def _causes(error: Optional[BaseException]) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _is_about_certificates(error: ssl.SSLError) -> bool:
    text = str(error).lower()
    return isinstance(error, ssl.SSLCertVerificationError) or "certificate" in text or "unknown ca" in text


def _off_the_loop(provider: CredentialProvider) -> CredentialProvider:
    """A provider without an asynchronous method may block: it is called in another thread."""
    default = getattr(CredentialProvider, "get_credentials_async", None)
    if default is None or getattr(type(provider), "get_credentials_async", None) is not default:
        return provider
    return _InAThread(provider)


class _InAThread(CredentialProvider):
    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider

    def get_credentials(self) -> Any:
        return self._provider.get_credentials()

    async def get_credentials_async(self) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, self._provider.get_credentials)
