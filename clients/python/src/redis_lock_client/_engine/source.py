"""Where the nodes of a server are and how to log in there, read from a client of redis-py."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import redis.asyncio as redis_asyncio
import redis.asyncio.cluster as asyncio_cluster
import redis.asyncio.connection as asyncio_connection
import redis.asyncio.sentinel as asyncio_sentinel
import redis.cluster as sync_cluster
import redis.connection as sync_connection
import redis.sentinel as sync_sentinel

from ..errors import ConfigError
from .dial import Endpoint, Login

Remap = Callable[[tuple[str, int]], tuple[str, int]]


@dataclass(frozen=True)
class Sentinels:
    """The sentinels that know the primary of this name."""

    primary: str
    logins: tuple[tuple[Endpoint, Login], ...]


@dataclass(frozen=True)
class Source:
    """One server, the nodes of a cluster, or the sentinels that know the primary."""

    login: Login
    seeds: tuple[Endpoint, ...] = ()
    is_cluster: bool = False
    sentinels: Optional[Sentinels] = None
    remap: Optional[Remap] = field(default=None, repr=False)

    @property
    def is_single(self) -> bool:
        """Whether there is no other node to look for."""
        return not self.is_cluster and self.sentinels is None

    @property
    def name(self) -> str:
        """The name in messages: the nodes, without credentials."""
        if self.sentinels is not None:
            hosts = sorted(endpoint.name for endpoint, _ in self.sentinels.logins)
            return ",".join(hosts) + "/" + self.sentinels.primary
        return ",".join(sorted(endpoint.name for endpoint in self.seeds))

    @property
    def data_name(self) -> str:
        """The name of the data: a key of one database is not that of another."""
        return f"{self.name}/{self.login.options.get('db') or 0}"


def is_asyncio_client(client: Any) -> bool:
    """Whether the methods of this client are coroutines."""
    return isinstance(client, (redis_asyncio.Redis, asyncio_cluster.RedisCluster))


def check_client(client: Any) -> None:
    """Refuses an object that is no client of redis-py.

    :raises ConfigError: then.
    """
    if not hasattr(client, "connection_pool") and not hasattr(client, "nodes_manager"):
        raise ConfigError("a client of redis-py is needed: redis.Redis, redis.RedisCluster, or their asyncio forms")


def source_of(client: Any) -> Source:
    """The source of a client of redis-py, synchronous or not.

    :raises ConfigError: when it is no such client, or has options that cannot be kept.
    """
    if isinstance(client, (sync_cluster.RedisCluster, asyncio_cluster.RedisCluster)):
        return _of_cluster(client)
    check_client(client)
    pool: Any = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if not isinstance(options, dict):
        raise ConfigError("a client of redis-py has a connection pool with connection_kwargs")
    if isinstance(pool, (sync_sentinel.SentinelConnectionPool, asyncio_sentinel.SentinelConnectionPool)):
        return _of_sentinels(pool)
    login = _login(pool.connection_class, options)
    if issubclass(login.connection_class, asyncio_connection.UnixDomainSocketConnection):
        return Source(login, (Endpoint("", 0, str(options.get("path", ""))),))
    return Source(login, (_endpoint(options),))


def _of_sentinels(pool: Any) -> Source:
    if not pool.is_master:
        raise ConfigError("locks need the primary: take the client from master_for(), not from slave_for()")
    logins = []
    for sentinel in pool.sentinel_manager.sentinels:
        own = sentinel.connection_pool
        logins.append((_endpoint(own.connection_kwargs), _login(own.connection_class, own.connection_kwargs)))
    name = pool.service_name
    name = name.decode() if isinstance(name, bytes) else str(name)
    login = _login(pool.connection_class, pool.connection_kwargs)
    return Source(login, sentinels=Sentinels(name, tuple(logins)))


def _of_cluster(client: Any) -> Source:
    manager = client.nodes_manager
    options = dict(manager.connection_kwargs)
    # The client's own function, which sends READONLY.
    options.pop("redis_connect_func", None)
    default = sync_connection.SSLConnection if options.pop("ssl", False) else sync_connection.Connection
    connection_class = options.pop("connection_class", default)
    nodes = {**manager.startup_nodes, **manager.nodes_cache}
    seeds = dict.fromkeys(Endpoint(str(node.host), int(node.port)) for node in nodes.values())
    remap = getattr(manager, "address_remap", None)
    return Source(_login(connection_class, options), tuple(seeds), is_cluster=True, remap=remap)


def _endpoint(options: dict[str, Any]) -> Endpoint:
    return Endpoint(str(options.get("host", "localhost")), int(options.get("port", 6379)))


def _login(connection_class: type[Any], options: dict[str, Any]) -> Login:
    options = dict(options)
    function = options.get("redis_connect_func")
    if function is None:
        options.pop("redis_connect_func", None)
    elif not issubclass(connection_class, asyncio_connection.AbstractConnection) and not (
        asyncio.iscoroutinefunction(function) or inspect.iscoroutinefunction(function)
    ):
        raise ConfigError("redis_connect_func of a synchronous client cannot be used: it gets an asyncio connection")
    return Login.of(_asyncio_class(connection_class), options)


def _asyncio_class(connection_class: type[Any]) -> type[Any]:
    """The asyncio class that opens the same connections."""
    managed = (asyncio_sentinel.SentinelManagedConnection, sync_sentinel.SentinelManagedConnection)
    is_managed = issubclass(connection_class, managed)
    if issubclass(connection_class, asyncio_connection.AbstractConnection) and not is_managed:
        return connection_class
    tls = (asyncio_connection.SSLConnection, sync_connection.SSLConnection)
    if issubclass(connection_class, tls):
        return asyncio_connection.SSLConnection
    if issubclass(connection_class, sync_connection.UnixDomainSocketConnection):
        return asyncio_connection.UnixDomainSocketConnection
    if issubclass(connection_class, (sync_connection.Connection, asyncio_connection.Connection)):
        return asyncio_connection.Connection
    raise ConfigError(f"connections of the class {connection_class.__name__} have no asyncio form")
