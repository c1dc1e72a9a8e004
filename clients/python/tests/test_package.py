"""The package as it is published: the source distribution, the wheel that is built from it, and a lock of its user."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
import redis
from harness import TestServer

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def run(*words: object, cwd: pathlib.Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment or None, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_source_distribution_can_be_installed(server: TestServer, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("hatchling")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=PACKAGE)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.split("/", 1)[1] for name in sources.getnames()}
        sources.extractall(tmp_path)
    assert {"LICENSE", "README.md", "requirements-test.txt", "tests/harness.py"} <= names
    assert not [name for name in names if "cache" in name]
    unpacked = tmp_path / archive.name.replace(".tar.gz", "")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    script = f"""
import redis, redis_lock_client, redis_lock_client.asyncio
with redis_lock_client.Lock(redis.Redis(port={server.port}), "k") as lock:
    print(redis_lock_client.__file__, lock.token)
"""
    # Of the tests' environment only redis-py is used.
    place, token = run(
        python, "-c", script, cwd=tmp_path, PYTHONPATH=str(pathlib.Path(redis.__file__).parents[1])
    ).split()
    assert place.startswith(str(tmp_path / "venv")) and int(token) > 0
