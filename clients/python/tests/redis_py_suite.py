"""Runs redis-py's own lock tests against the ``Lock`` of this package, and counts.

    python tests/redis_py_suite.py [version of redis-py]

The tests are those of the source distribution on PyPI, which pip downloads; they are not changed. The adaptation is
the plugin below: the name ``Lock`` in ``redis.lock`` and ``redis.asyncio.lock`` means the class of this package, and
``GET`` of a key that holds a lock answers its owner, because the key is a hash and not a string. A case that fails for
a reason is in ``EXPECTED``; the program fails when another one does, or when one of these passes.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import redis

HERE = pathlib.Path(__file__).resolve().parent

_ENDLESS = "asserts that the key has no TTL: a lock without a timeout has a lease of 30 s, which is renewed"
_SLEEPS = "counts the sleeps between polls, on a clock of its own: a wait polls nothing"
#: The cases that fail, and why.
EXPECTED = {
    "test_lock": _ENDLESS,
    "test_lock_token": _ENDLESS,
    "test_lock_token_thread_local_false": _ENDLESS,
    "test_blocking_timeout": _SLEEPS,
    "test_context_manager_blocking_timeout": _SLEEPS,
}

PLUGIN = """
import redis, redis.lock, redis.asyncio, redis.asyncio.lock
import redis_lock_client, redis_lock_client.asyncio

redis.lock.Lock = redis_lock_client.Lock
redis.asyncio.lock.Lock = redis_lock_client.asyncio.Lock

def owner_of(fields):
    for name in fields or ():
        if name not in (b"#token", "#token"):
            return name

get, aget = redis.Redis.get, redis.asyncio.Redis.get

def get_owner(self, name):
    if self.type(name) in (b"hash", "hash"):
        return owner_of(self.hkeys(name))
    return get(self, name)

async def aget_owner(self, name):
    if await self.type(name) in (b"hash", "hash"):
        return owner_of(await self.hkeys(name))
    return await aget(self, name)

redis.Redis.get = get_owner
redis.asyncio.Redis.get = aget_owner
"""


def main() -> int:
    version = sys.argv[1] if len(sys.argv) > 1 else redis.__version__
    sys.path.insert(0, str(HERE))
    from harness import TestServer

    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        if version == redis.__version__:
            # What its build needs is in requirements-test.txt.
            command.append("--no-build-isolation")
        subprocess.run([*command, f"redis=={version}", "-d", directory], check=True)
        archive = next(root.glob("redis-*.tar.gz"))
        with tarfile.open(archive) as packed:
            # The installed package is tested, not the copy in the archive.
            names = [
                one for one in packed.getmembers() if re.match(r"redis-[^/]+/(tests/|pytest\.ini|dockers)", one.name)
            ]
            packed.extractall(directory, members=names)
        tests = next(path for path in root.glob("redis-*") if path.is_dir())
        (tests / "redis_lock_plugin.py").write_text(PLUGIN)
        server = TestServer()
        try:
            words = ["-p", "redis_lock_plugin", "-p", "no:cacheprovider", "-q", "-rA", "--asyncio-mode=auto"]
            words += [f"--redis-url={server.url}/0", "tests/test_lock.py", "tests/test_asyncio/test_lock.py"]
            result = subprocess.run(
                [sys.executable, "-m", "pytest", *words],
                cwd=tests,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(HERE.parent / "src")])},
                capture_output=True,
                text=True,
                timeout=300,
            )
        finally:
            server.stop()
    return report(result.stdout + result.stderr, version)


def report(output: str, version: str) -> int:
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) (\S+)", output, re.MULTILINE)
    passed = [name for outcome, name in outcomes if outcome == "PASSED"]
    failed = [name for outcome, name in outcomes if outcome in ("FAILED", "ERROR")]
    unexpected = [name for name in failed if _case(name) not in EXPECTED]
    mended = [name for name in passed if _case(name) in EXPECTED]
    for name in failed:
        print(f"  {name}: {EXPECTED.get(_case(name), 'UNEXPECTED')}")
    for name in mended:
        print(f"  {name}: passes, and is listed as failing")
    if unexpected or mended or not passed:
        print(output)
    print(f"redis-py {version}: {len(passed)} cases pass, {len(failed)} fail, {len(unexpected)} of them unexpectedly")
    return 1 if unexpected or mended or not passed else 0


def _case(name: str) -> str:
    return re.sub(r"\[.*", "", name.rsplit("::", 1)[-1])


if __name__ == "__main__":
    sys.exit(main())
