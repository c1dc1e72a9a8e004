"""The URL of a server: one server, the nodes of a cluster, or the sentinels that know the primary.

The grammar is that of all clients, ``clients/addresses.tsv`` in the repository. No message quotes a part of a URL: it
may be a password.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, NamedTuple, Optional
from urllib.parse import unquote

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncioNode
from redis.asyncio.sentinel import Sentinel as AsyncioSentinel
from redis.cluster import ClusterNode
from redis.sentinel import Sentinel

from .errors import ConfigError

#: The kind and whether it has TLS, by the scheme.
_SCHEMES = {
    f"{word}{end}{kind}": (kind[1:] or "server", end == "s")
    for word in ("redis", "valkey")
    for end in ("", "s")
    for kind in ("", "+cluster", "+sentinel")
}
_SCHEMES.update(dict.fromkeys(("unix", "redis+unix", "valkey+unix"), ("socket", False)))
_MOST_DATABASES = 2**31


class Address(NamedTuple):
    """What a URL says."""

    kind: str
    is_tls: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    path: Optional[str] = None
    database: int = 0
    user: Optional[str] = None
    password: Optional[str] = None
    protocol: Optional[int] = None
    primary: Optional[str] = None
    sentinel_user: Optional[str] = None
    sentinel_password: Optional[str] = None


def parse(url: str) -> Address:
    """What a URL says.

    :raises ConfigError: for another text.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "redis", url
    if scheme.lower() not in _SCHEMES:
        raise _unreadable("its scheme is not known")
    kind, is_tls = _SCHEMES[scheme.lower()]
    if re.search("%(?![0-9A-Fa-f]{2})", rest):
        raise _unreadable("a % is not followed by two digits")
    place, _, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if kind == "socket":
        if hosts or not slash:
            raise _unreadable("the path of a socket begins with /")
    elif "@" in rest[len(authority.partition("#")[0]) :] or re.search(r"[\[\]]", login):
        raise _unreadable("in a login / ? # [ ] are written %2F %3F %23 %5B %5D")
    if "#" in rest:
        raise _unreadable("a # is written %23")
    user, colon, password = login.partition(":")
    if at and not colon:
        raise _unreadable("a login is user:password or :password")
    options = _options(query, kind)
    primary = None
    if kind == "sentinel":
        primary, _, path = path.partition("/")
        primary = unquote(primary)
    found = Address(
        kind,
        is_tls,
        () if kind == "socket" else _hosts(hosts, kind),
        unquote(slash + path) if kind == "socket" else None,
        _database([] if kind == "socket" or not path else [path], options["db"]),
        unquote(user) or None,
        unquote(password) or None,
        _protocol(options["protocol"]),
        primary,
        *(unquote("".join(options[name])) or None for name in ("sentinel-user", "sentinel-password")),
    )
    if kind == "cluster" and found.database:
        raise _unreadable("a cluster has the database 0 alone")
    if primary == "":
        raise _unreadable("the primary's name is missing behind the hosts")
    if primary and re.search(r"[\s\x00-\x1f\x7f]", primary):
        raise _unreadable("the primary's name has white space or a control character")
    return found


def _hosts(text: str, kind: str) -> tuple[tuple[str, int], ...]:
    default = 26_379 if kind == "sentinel" else 6_379
    return tuple(_host(one, default) for one in ([text] if kind == "server" else text.split(",")))


def _host(text: str, default: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if bracket and not host:
            raise _unreadable("a host is missing")
        if not bracket or port[:1] not in ("", ":") or not _is_ipv6(host):
            raise _unreadable("an IPv6 address stands in brackets")
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            raise _unreadable("an IPv6 address stands in brackets")
        if not host:
            raise _unreadable("a host is missing")
        if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
            raise _unreadable("a host has letters, digits and -._ only")
        port = colon + port
    if not port:
        return host, default
    if not re.fullmatch(r":[0-9]{1,5}", port) or not 1 <= int(port[1:]) <= 65_535:
        raise _unreadable("a port is a number from 1 to 65535")
    return host, int(port[1:])


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _options(query: str, kind: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"db": [], "protocol": [], "sentinel-user": [], "sentinel-password": []}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        is_known = name in ("db", "protocol") or (name in found and kind == "sentinel")
        if not is_known or not value or (found[name] and name != "db"):
            raise _unreadable("behind the ? is an option that is not known")
        found[name].append(value)
    return found


def _database(path: list[str], option: list[str]) -> int:
    values = path + [unquote(text) for text in option]
    if not all(re.fullmatch("[0-9]{1,10}", text) and int(text) < _MOST_DATABASES for text in values):
        raise _unreadable("the database is a number")
    if len({int(text) for text in values}) > 1:
        raise _unreadable("the database is given twice")
    return int(values[0]) if values else 0


def _protocol(option: list[str]) -> Optional[int]:
    if not option:
        return None
    if option[0] not in ("2", "3"):
        raise _unreadable("the protocol is 2 or 3")
    return int(option[0])


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        f"no URL of a server: {why} (redis://host:port, redis+cluster://host:port,host:port, "
        "redis+sentinel://host:port,host:port/name)"
    )


def client_of_url(url: str, is_asyncio: bool) -> Any:
    """The client that a URL names.

    :raises ConfigError: for another text, without quoting it.
    """
    if not isinstance(url, str):
        raise ConfigError("the URL of a server is a text")
    address = parse(url)
    # Older redis-py does not compare the names of certificates by default.
    shared: dict[str, Any] = {"ssl": True, "ssl_check_hostname": True} if address.is_tls else {}
    if address.protocol is not None:
        shared["protocol"] = address.protocol
    options = {**shared, "username": address.user, "password": address.password}
    client: Any = redis.asyncio.Redis if is_asyncio else redis.Redis
    if address.kind == "socket":
        return client(unix_socket_path=address.path, db=address.database, **options)
    if address.kind == "server":
        ((host, port),) = address.hosts
        return client(host=host, port=port, db=address.database, **options)
    if address.kind == "cluster":
        cluster: Any = redis.asyncio.RedisCluster if is_asyncio else redis.RedisCluster
        node: Any = AsyncioNode if is_asyncio else ClusterNode
        return cluster(startup_nodes=[node(*host) for host in address.hosts], **options)
    own = {**shared, "username": address.sentinel_user, "password": address.sentinel_password}
    sentinels: Any = AsyncioSentinel if is_asyncio else Sentinel
    found = sentinels(list(address.hosts), sentinel_kwargs=own, db=address.database, **options)
    return found.master_for(address.primary)
