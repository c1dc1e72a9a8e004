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

_SCHEMES = re.compile(r"(?:redis|valkey)(s?)(?:\+(cluster|sentinel))?|(?:redis\+|valkey\+)?(unix)")
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
    scheme, _, rest = url.partition("://") if "://" in url else ("redis", "", url)
    known = _SCHEMES.fullmatch(scheme.lower())
    _check(known, "its scheme is not known")
    assert known is not None
    kind, is_tls = "socket" if known[3] else known[2] or "server", known[1] == "s"
    _check(not re.search("%(?![0-9A-Fa-f]{2})", rest), "a % is not followed by two digits")
    place, _, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if kind == "socket":
        _check(slash and not hosts, "the path of a socket begins with /")
    else:
        is_whole = "@" not in rest[len(authority.partition("#")[0]) :] and not re.search(r"[\[\]]", login)
        _check(is_whole, "in a login / ? # [ ] are written %2F %3F %23 %5B %5D")
    _check("#" not in rest, "a # is written %23")
    user, colon, password = login.partition(":")
    _check(colon or not at, "a login is user:password or :password")
    primary = None
    if kind == "sentinel":
        name, _, path = path.partition("/")
        primary = unquote(name)
    several = hosts.split(",") if kind in ("cluster", "sentinel") else [hosts]
    found = () if kind == "socket" else tuple(_host(one, 26_379 if kind == "sentinel" else 6_379) for one in several)
    _check(primary != "", "the primary's name is missing behind the hosts")
    is_name = not re.search(r"[\s\x00-\x1f\x7f]", primary or "")
    _check(is_name, "the primary's name has white space or a control character")

    options: dict[str, str] = {}
    databases = [path] if path and kind != "socket" else []
    names = ("db", "protocol", "sentinel-user", "sentinel-password")
    for pair in query.split("&") if query else ():
        option, _, value = pair.partition("=")
        is_known = option in (names if kind == "sentinel" else names[:2]) and (option not in options or option == "db")
        _check(is_known and value, "behind the ? is an option that is not known")
        options[option] = unquote(value)
        if option == "db":
            databases.append(options[option])
    are_numbers = all(re.fullmatch("[0-9]{1,10}", text) and int(text) < _MOST_DATABASES for text in databases)
    _check(are_numbers, "the database is a number")
    _check(len(set(map(int, databases))) <= 1, "the database is given twice")
    database = int(databases[0]) if databases else 0
    _check(not database or kind != "cluster", "a cluster has the database 0 alone")
    protocol = options.get("protocol", "")
    _check(protocol in ("", "2", "3"), "the protocol is 2 or 3")
    return Address(
        kind,
        is_tls,
        found,
        unquote(slash + path) if kind == "socket" else None,
        database,
        unquote(user) or None,
        unquote(password) or None,
        int(protocol) if protocol else None,
        primary,
        options.get("sentinel-user"),
        options.get("sentinel-password"),
    )


def _host(text: str, default: int) -> tuple[str, int]:
    parts = re.fullmatch(r"(?:\[([^]]*)\]|([^:]*))(?::([^:]*))?", text)
    ip, name, port = parts.groups() if parts else (text, None, None)
    host = str(ip or name or "")
    _check(host, "a host is missing")
    _check(parts and (not ip or _is_ipv6(ip)), "an IPv6 address stands in brackets")
    _check(ip or re.fullmatch(r"[A-Za-z0-9._-]+", host), "a host has letters, digits and -._ only")
    if port is None:
        return host, default
    is_port = re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65_535
    _check(is_port, "a port is a number from 1 to 65535")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _check(is_right: object, why: str) -> None:
    if not is_right:
        raise ConfigError(
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
