from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import pytest
from harness import Proxy, TestServer


@pytest.fixture
def start() -> Iterator[Callable[..., TestServer]]:
    """Starts servers, which end with the test."""
    servers: list[TestServer] = []

    def begin(*options: str, module: bool = True) -> TestServer:
        servers.append(TestServer(*options, module=module))
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()


@pytest.fixture
def server(start: Callable[..., TestServer]) -> TestServer:
    return start()


@pytest.fixture
def proxy(server: TestServer) -> Iterator[Proxy]:
    one = Proxy(server.port)
    yield one
    one.close()
