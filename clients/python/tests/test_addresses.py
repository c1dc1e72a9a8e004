"""The grammar of addresses: the table that all clients test."""

from __future__ import annotations

import pathlib

import pytest

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Server
from redis_lock_client._address import Address, parse

TABLE = pathlib.Path(__file__).resolve().parents[2] / "addresses.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]


def rendered(address: Address) -> str:
    """An address as the table has it."""
    hosts = sorted(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.hosts)
    words = [address.kind, *["tls"] * address.is_tls, address.path or ",".join(hosts)]
    names = ("database", "user", "password", "protocol", "primary", "sentinel_user", "sentinel_password")
    values = [(name.replace("_", "-"), getattr(address, name)) for name in names]
    return " ".join([*words, *(f"{name}={value}" for name, value in values if value is not None)])


@pytest.mark.parametrize("url,meaning", ROWS)
def test_an_address_of_the_table(url: str, meaning: str) -> None:
    if meaning.startswith("error: "):
        for kind in (Server, client.asyncio.Server):
            with pytest.raises(client.ConfigError) as raised:
                kind.open(url)
            assert meaning[len("error: ") :] in str(raised.value)
            assert "secret" not in str(raised.value) and raised.value.__context__ is None
    else:
        assert rendered(parse(url)) == meaning


@pytest.mark.parametrize(
    "url,name",
    [
        ("redis://u:secret@h:7000/3", "h:7000"),
        ("redis://[::1]:7000", "[::1]:7000"),
        ("rediss+sentinel://u:secret@b:2,a/main/5?sentinel-password=secret", "main of sentinels"),
        ("unix://u:secret@/tmp/a?db=2", "/tmp/a"),
    ],
)
def test_a_server_has_the_name_of_its_address(url: str, name: str) -> None:
    for server in (Server.open(url), client.asyncio.Server.open(url)):
        assert server.name == name and "secret" not in repr(server)
