"""The examples of README.md, run as they are, against a server of the test."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from harness import TestServer

import redis_lock_client

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
SOURCE = str(pathlib.Path(redis_lock_client.__file__).parents[1])


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example(server: TestServer, number: int) -> None:
    script = EXAMPLES[number].replace("6379", str(server.port))
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=environment, capture_output=True, text=True, timeout=20
    )
    assert (result.stderr, result.returncode) == ("", 0)
    assert result.stdout
    assert server.run("DBSIZE") <= 3, "no lock is left (a semaphore and a horizon are)"
