"""What the package asks of the program's client: its kind, its name in messages, and its errors."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from redis import exceptions as redis_errors
from redis.client import NEVER_DECODE
from redis.connection import AbstractConnection

from .errors import ConfigError, ConnectionFailed, Error, of_redis

#: Tokens of one thread are read by another as bytes, whatever the program's client decodes.
RAW: dict[str, Any] = {NEVER_DECODE: True}


def is_cluster(client: Any) -> bool:
    """Whether a client is one of a cluster."""
    return hasattr(client, "get_node_from_key")


def name_of(client: Any) -> str:
    """The name of a server in messages, without credentials."""
    options = dict(client.get_connection_kwargs())
    if "path" in options:
        return str(options["path"])
    pool: Any = getattr(client, "connection_pool", None)
    if hasattr(pool, "service_name"):
        return f"{pool.service_name} of sentinels"
    nodes = getattr(getattr(client, "nodes_manager", None), "startup_nodes", None)
    if nodes:
        return ",".join(sorted(nodes))
    host = str(options.get("host", "localhost"))
    return f"{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}"


def check_client(client: Any, is_asyncio: bool) -> None:
    """Refuses what is no client of the kind."""
    execute = getattr(client, "execute_command", None)
    if not callable(execute) or not hasattr(client, "get_connection_kwargs"):
        raise ConfigError("a client of redis-py is needed: Redis or RedisCluster")
    if inspect.iscoroutinefunction(execute) is not is_asyncio:
        raise ConfigError(
            "a client of redis.asyncio is needed: redis.asyncio.Redis or redis.asyncio.RedisCluster"
            if is_asyncio
            else "this client is asynchronous: use redis_lock_client.asyncio"
        )
    if getattr(getattr(client, "connection_pool", None), "is_master", True) is False:
        raise ConfigError("locks are taken at the primary: use Sentinel.master_for()")


def translated(server: str, error: BaseException) -> Error:
    """The error of this package for one of the client. What a signal handler has raised is raised again."""
    if not isinstance(error, redis_errors.ResponseError):
        _drop_connections(error)
    is_known = isinstance(error, (Error, OSError)) or type(error).__module__.startswith("redis.")
    if not isinstance(error, Exception) or not (is_known or is_of_provider(error)):
        raise error
    found = of_redis(server, error)
    # The server's own text may name the user or an owner.
    found.__cause__ = error if isinstance(found, ConnectionFailed) and found is not error else found.__cause__
    found.__suppress_context__ = True
    return found


def _drop_connections(error: BaseException) -> None:
    """Closes the connections on which an error has come. What is not redis-py's own, as the exception of a signal
    handler, may leave a reply unread, and redis-py gives such a connection to the next request."""
    trace = error.__traceback__
    while trace is not None:
        for one in list(trace.tb_frame.f_locals.values()):
            if isinstance(one, AbstractConnection):
                connection: Any = one
                with contextlib.suppress(Exception):
                    connection.disconnect()
        trace = trace.tb_next


@contextlib.contextmanager
def translating(server: str) -> Iterator[None]:
    """Raises the errors of this package for those of the client."""
    try:
        yield
    except BaseException as error:
        raise translated(server, error)  # noqa: B904 - it has its cause


def is_of_provider(error: BaseException) -> bool:
    """Whether a credential provider of the program has raised it."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name.startswith("get_credentials"):
            return True
        trace = trace.tb_next
    return False
