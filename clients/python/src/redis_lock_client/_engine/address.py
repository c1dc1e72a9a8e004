"""The URL of a server: one server, the nodes of a cluster, or the sentinels that know the primary.

``redis://host:port/db``, ``rediss://`` with TLS, ``unix:///path``, ``redis+cluster://host:port,host:port``,
``redis+sentinel://host:port,host:port/name/db?sentinel-user=..&sentinel-password=..``; ``valkey`` is another word for
``redis``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url

from ..errors import ConfigError
from .dial import Endpoint, Login
from .source import Sentinels, Source

_SENTINEL_PORT = 26_379
_WORDS = {"valkey": "redis", "valkeys": "rediss", "redis+unix": "unix", "valkey+unix": "unix"}


def source_of_url(url: str) -> Source:
    """The source that a URL names.

    :raises ConfigError: for another text. The message does not quote it, as it may have a password.
    """
    if not isinstance(url, str):
        raise ConfigError("the URL of a server is a text")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "redis", url
    if scheme.endswith("+cluster"):
        return _cluster(scheme[: -len("+cluster")], rest)
    if scheme.endswith("+sentinel"):
        return _sentinel(scheme[: -len("+sentinel")], rest)
    endpoint, login = _server(scheme, rest)
    return Source(login, (endpoint,))


def _cluster(scheme: str, rest: str) -> Source:
    user, hosts = _split_user(rest)
    nodes = [_server(scheme, user + host) for host in hosts.rstrip("/").split(",")]
    seeds = dict.fromkeys(endpoint for endpoint, _ in nodes)
    return Source(nodes[0][1], tuple(seeds), is_cluster=True)


def _sentinel(scheme: str, rest: str) -> Source:
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
    _, login = _server(scheme, f"{user}primary/{db}")
    return Source(login, sentinels=Sentinels(unquote(primary), tuple(logins)))


def _split_user(rest: str) -> tuple[str, str]:
    at = rest.rfind("@") + 1
    return rest[:at], rest[at:]


def _server(scheme: str, rest: str) -> tuple[Endpoint, Login]:
    scheme = _WORDS.get(scheme, scheme)
    try:
        options: dict[str, Any] = dict(parse_url(f"{scheme}://{rest}"))
    except (ValueError, TypeError):
        # Its text quotes parts of the URL.
        options = {}
    if scheme not in ("redis", "rediss", "unix") or (not options and rest.strip("/")):
        raise _unreadable("the scheme, a port or a number is wrong")
    if scheme == "unix":
        return Endpoint("", 0, options["path"]), Login.of(UnixDomainSocketConnection, options)
    endpoint = Endpoint(options.get("host", "localhost"), options.get("port", 6379))
    options.pop("connection_class", None)
    if scheme == "rediss":
        # Older redis-py does not compare names by default.
        options.setdefault("ssl_check_hostname", True)
    return endpoint, Login.of(SSLConnection if scheme == "rediss" else Connection, options)


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        f"no URL of a server: {why} (redis://host:port, redis+cluster://host:port,host:port, "
        "redis+sentinel://host:port,host:port/name)"
    )
