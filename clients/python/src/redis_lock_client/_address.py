"""The URL of a server: one server, the nodes of a cluster, or the sentinels that know the primary.

``redis://host:port/db``, ``rediss://`` with TLS, ``unix:///path``, ``redis+cluster://host:port,host:port``,
``redis+sentinel://host:port,host:port/name/db?sentinel-user=..&sentinel-password=..``; ``valkey`` is another word for
``redis``.
"""

from __future__ import annotations

import inspect
import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncioNode
from redis.asyncio.connection import URL_QUERY_ARGUMENT_PARSERS, SSLConnection, parse_url
from redis.asyncio.sentinel import Sentinel as AsyncioSentinel
from redis.cluster import ClusterNode
from redis.sentinel import Sentinel

from .errors import ConfigError

_SENTINEL_PORT = 26_379
_WORDS = {"valkey": "redis", "valkeys": "rediss", "redis+unix": "unix", "valkey+unix": "unix"}
#: The options of redis-py that a URL may have, besides those of TLS. Others are objects, or have another place.
_OPTIONS = frozenset(name for name in URL_QUERY_ARGUMENT_PARSERS if not name.startswith("ssl_")) | {
    "client_name",
    "decode_responses",
    "encoding",
    "encoding_errors",
    "lib_name",
    "lib_version",
    "password",
    "protocol",
    "username",
}
_TLS_OPTIONS = frozenset(name for name in inspect.signature(SSLConnection.__init__).parameters if name[:4] == "ssl_")
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


def client_of_url(url: str, is_asyncio: bool) -> Any:
    """The client that a URL names.

    :raises ConfigError: for another text. The message does not quote it, as it may have a password.
    """
    if not isinstance(url, str):
        raise ConfigError("the URL of a server is a text")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "redis", url
    if _LONE_PERCENT.search(rest):
        raise _unreadable("a % is not followed by two digits")
    if scheme.endswith("+cluster"):
        return _cluster(_word(scheme, "+cluster"), rest, is_asyncio)
    if scheme.endswith("+sentinel"):
        return _sentinel(_word(scheme, "+sentinel"), rest, is_asyncio)
    scheme = _WORDS.get(scheme, scheme)
    options = _socket(rest) if scheme == "unix" else _server(scheme, rest)
    return (redis.asyncio.Redis if is_asyncio else redis.Redis)(**options)


def _word(scheme: str, end: str) -> str:
    word = scheme[: -len(end)]
    return _WORDS.get(word, word)


def _cluster(scheme: str, rest: str, is_asyncio: bool) -> Any:
    user, hosts = _split_user(rest)
    hosts, mark, query = hosts.partition("?")
    hosts, _, path = hosts.partition("/")
    nodes = [_server(scheme, f"{user}{host}/{path}{mark}{query}") for host in hosts.split(",")]
    options = nodes[0]
    if options.pop("db", 0):
        raise _unreadable("a cluster has the database 0 alone")
    seeds = [(node["host"], node.get("port", 6379)) for node in nodes]
    del options["host"]
    options.pop("port", None)
    if is_asyncio:
        return redis.asyncio.RedisCluster(startup_nodes=[AsyncioNode(*seed) for seed in seeds], **options)
    node: Any = ClusterNode
    return redis.RedisCluster(startup_nodes=[node(*seed) for seed in seeds], **options)


def _sentinel(scheme: str, rest: str, is_asyncio: bool) -> Any:
    rest, _, query = rest.partition("?")
    user, hosts = _split_user(rest)
    hosts, _, primary = hosts.partition("/")
    primary, _, db = primary.partition("/")
    if not primary:
        raise _unreadable("the primary's name is missing behind the hosts")
    own = {"sentinel-user": "", "sentinel-password": ""}
    for pair in filter(None, query.split("&")):
        name, separator, value = pair.partition("=")
        if not separator or name not in own:
            # The error does not quote the parameter, which may be a password.
            raise _unreadable("behind the ? there is only sentinel-user=... and sentinel-password=...")
        own[name] = value
    user_of_sentinels = "{sentinel-user}:{sentinel-password}@".format(**own) if any(own.values()) else ""
    logins = []
    for host in hosts.split(","):
        has_port = ":" in host and not host.endswith("]")
        logins.append(_server(scheme, f"{user_of_sentinels}{host}{'' if has_port else f':{_SENTINEL_PORT}'}"))
    options = _server(scheme, f"{user}primary/{db}")
    del options["host"]
    options.pop("port", None)
    addresses = [(login.pop("host"), login.pop("port")) for login in logins]
    kind = AsyncioSentinel if is_asyncio else Sentinel
    return kind(addresses, sentinel_kwargs=logins[0], **options).master_for(unquote(primary))


def _split_user(rest: str) -> tuple[str, str]:
    at = rest.rfind("@") + 1
    return rest[:at], rest[at:]


def _server(scheme: str, rest: str) -> dict[str, Any]:
    if scheme not in ("redis", "rediss"):
        raise _unreadable("its scheme is not known")
    options = _options(scheme, rest)
    if not options.get("host"):
        raise _unreadable("a host is missing")
    if scheme == "rediss":
        # Older redis-py does not compare names by default.
        options = {"ssl": True, "ssl_check_hostname": True, **options}
    return options


def _socket(rest: str) -> dict[str, Any]:
    options = _options("unix", rest)
    if not options.get("path"):
        raise _unreadable("the path of a socket is missing")
    options["unix_socket_path"] = options.pop("path")
    return options


def _options(scheme: str, rest: str) -> dict[str, Any]:
    """What redis-py reads from a URL. It does not see all mistakes: those are refused here."""
    url = f"{scheme}://{rest}"
    try:
        parts = urlsplit(url)
        options: dict[str, Any] = dict(parse_url(url))
    except (ValueError, TypeError):
        # Its text quotes parts of the URL.
        raise _unreadable("a port, a number or an option is wrong") from None
    user, at, _ = parts.netloc.rpartition("@")
    if at and ":" not in user:
        raise _unreadable("a login is user:password or :password")
    if parts.fragment:
        raise _unreadable("a # is written %23")
    database = parts.path[1:]
    if scheme != "unix" and database and not (database.isascii() and database.isdigit()):
        raise _unreadable("the database is no number")
    if options.get("db", 0) < 0:
        raise _unreadable("the database is no number")
    asked = parse_qs(parts.query, keep_blank_values=True)
    known = _OPTIONS | _TLS_OPTIONS if scheme == "rediss" else _OPTIONS
    if not known.issuperset(asked) or not all(all(values) for values in asked.values()):
        raise _unreadable("behind the ? is an option that is not known")
    options.pop("connection_class", None)
    return options


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        f"no URL of a server: {why} (redis://host:port, redis+cluster://host:port,host:port, "
        "redis+sentinel://host:port,host:port/name)"
    )
