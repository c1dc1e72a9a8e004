"""Clusters with slots that move, sentinels, replicas, TLS, users, and servers without tickets or without the module."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import socket
import subprocess
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from harness import USERS, Proxy, TestServer, bounded, free_port, move_slot, two_nodes, wait_for
from redis.sentinel import Sentinel
from test_asyncio import until

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, Server


def waits(make: Callable[[], Lock], count: int, order: list[bytes]) -> list[threading.Thread]:
    """Waits that take turns."""

    def work() -> None:
        with make() as lock:
            order.append(lock.local.token)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a wait is lost"


def test_a_slot_moves() -> None:
    here, there = two_nodes("--lock.queue-grace", "20000")
    try:
        here.run("LOCK.ACQUIRE {a}k holder PX 600000")
        cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
        slot = cluster.keyslot("{a}k")
        order: list[bytes] = []
        with Server(cluster) as locks:
            threads = waits(lambda: locks.lock("{a}k"), 10, order)
            wait_for("the waits", lambda: here.stat("tickets") == 10)
            move_slot(here, there, slot)
            wait_for("the waits at the other node", lambda: there.stat("tickets") == 10)
            there.run("LOCK.RELEASE {a}k holder")
            join(threads)
            assert len(set(order)) == 10
            assert there.stat("grants") == 10
            lock = cluster.lock("{a}k", lock_class=Lock, timeout=5)
            assert lock.acquire() and lock.owned()
            lock.extend(5)
            lock.release()
            other = Server.open(f"redis+cluster://127.0.0.1:{there.port},127.0.0.1:{here.port}")
            with other, other.lock("{a}k"), other.lock("{b}k"):
                assert there.run("EXISTS {a}k") == 1
        cluster.close()
    finally:
        here.stop()
        there.stop()


def test_a_slot_on_its_way(start: Any) -> None:
    here, there = two_nodes()
    try:
        cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
        slot = cluster.keyslot("{a}k")
        names = [node.observer.execute_command("CLUSTER MYID").decode() for node in (here, there)]
        there.run(f"CLUSTER SETSLOT {slot} IMPORTING {names[0]}")
        here.run(f"CLUSTER SETSLOT {slot} MIGRATING {names[1]}")
        # The key is missing here: ASK names the other node, which answers after ASKING.
        lock = Lock(cluster, "{a}k", blocking_timeout=2)
        begin = time.monotonic()
        try:
            assert lock.acquire()
            lock.release()
        except client.Refused as error:
            assert error.code == "TRYAGAIN"  # noqa: PT017 - the module may grant nothing on the way
            assert time.monotonic() - begin < 4
        cluster.close()
    finally:
        here.stop()
        there.stop()


def test_a_replica_is_promoted(start: Callable[..., TestServer]) -> None:
    primary = start("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
    replica = start()
    replica.run(f"REPLICAOF 127.0.0.1 {primary.port}")
    wait_for("the replica", lambda: replica.observer.info("replication").get("master_link_status") == "up")
    proxy = Proxy(primary.port)
    primary.hold()
    order: list[bytes] = []
    redis_client = redis.Redis(port=proxy.port)
    threads = waits(lambda: Lock(redis_client, "k"), 10, order)
    wait_for("the tickets", lambda: primary.stat("tickets") == 10)
    wait_for("the hold at the replica", lambda: replica.run("EXISTS k") == 1)
    replica.run("REPLICAOF NO ONE")
    proxy.connect_to(replica.port)
    primary.kill()
    wait_for("the tickets at the other server", lambda: replica.stat("tickets") == 10)
    replica.run("LOCK.RELEASE k holder")
    join(threads)
    assert (len(set(order)), replica.stat("grants")) == (10, 10)
    proxy.close()


def test_sentinels_and_a_failover(start: Callable[..., TestServer], tmp_path: pathlib.Path) -> None:
    primary, replica = start("--repl-diskless-sync-delay", "0"), start()
    replica.run(f"REPLICAOF 127.0.0.1 {primary.port}")
    wait_for("the replica", lambda: replica.observer.info("replication").get("master_link_status") == "up")
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds main 1500\nsentinel failover-timeout main 3000\n"
    )
    from harness import PROGRAM

    process = subprocess.Popen([PROGRAM, str(config), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        sentinel = Sentinel([("127.0.0.1", port)], socket_timeout=2)
        wait_for("the sentinel", lambda: sentinel.discover_slaves("main"))
        redis_client = sentinel.master_for("main")
        with Server(redis_client) as locks:
            lock = locks.lock("k", lease=120)
            assert lock.acquire() and primary.run("EXISTS k") == 1
            with locks.lock("confirmed", replicas=1, replicas_within=30):
                assert replica.run("EXISTS k confirmed") == 2
            waiting = locks.lock("k")
            order: list[bytes] = []
            threads = waits(lambda: waiting, 1, order)
            wait_for("the ticket", lambda: primary.stat("tickets") == 1)
            primary.kill()
            wait_for("the ticket at the new primary", lambda: replica.stat("tickets") == 1, 60)
            lock.release()
            join(threads)
            assert len(order) == 1
        wait_for("the new primary", lambda: sentinel.discover_master("main")[1] == replica.port, 60)
        with Server.open(f"redis+sentinel://127.0.0.1:{port}/main") as locks, locks.lock("other"):
            assert replica.run("EXISTS other") == 1
        with pytest.raises(client.ConfigError, match="primary"):
            Lock(sentinel.slave_for("main"), "k")
    finally:
        process.kill()
        process.wait()


def make_certificates(directory: pathlib.Path) -> tuple[str, str, str]:
    """A certificate of an authority, and one of the server with its key."""
    names = [str(directory / name) for name in ("ca.crt", "server.crt", "server.key", "ca.key", "server.csr", "ext")]
    ca, certificate, key, ca_key, request, extension = names
    pathlib.Path(extension).write_text(
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\nbasicConstraints=CA:FALSE\n"
    )
    for line in (
        f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout {ca_key} -out {ca} "
        "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign",
        f"req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout {key} -out {request}",
        f"x509 -req -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial -days 2 -extfile {extension} "
        f"-out {certificate}",
    ):
        subprocess.run(["openssl", *line.split()], check=True, capture_output=True)
    return ca, certificate, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(start: Callable[..., TestServer], tmp_path: pathlib.Path) -> None:
    ca, certificate, key = make_certificates(tmp_path)
    port = free_port()
    server = start(
        *f"--tls-port {port} --tls-cert-file {certificate} --tls-key-file {key} --tls-ca-cert-file {ca}".split(),
        *["--tls-auth-clients", "no"],
    )
    redis_client = redis.Redis(port=port, ssl=True, ssl_ca_certs=ca)
    order: list[bytes] = []
    with Server(redis_client) as locks, locks.lock("k") as lock:
        threads = waits(lambda: locks.lock("k"), 3, order)
        wait_for("the tickets", lambda: server.stat("tickets") == 3)
        lock.release()
        join(threads)
        lock.acquire()
    with Server.open(f"rediss://127.0.0.1:{port}") as locks, pytest.raises(client.Untrusted, match="certificate"):
        locks.lock("k").acquire()
    # The one that speaks TLS and the one that does not do not understand each other.
    with pytest.raises(client.ConnectionFailed):
        Lock(redis.Redis(port=start().port, ssl=True, **bounded(5)), "k").acquire()
    with pytest.raises(client.ConnectionFailed):
        Lock(redis.Redis(port=port, **bounded(5)), "k").acquire()


def test_a_port_that_speaks_http() -> None:
    web = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        near, _ = web.accept()
        near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    with web, pytest.raises(client.ConnectionFailed, match="HTTP/1"):
        Lock(redis.Redis(port=web.getsockname()[1], **bounded(5)), "k").acquire()


def test_a_lost_lock_of_a_dead_node_is_released_at_once(caplog: Any) -> None:
    here, there = two_nodes()
    cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
    try:
        with Server(cluster) as locks:
            lock = locks.lock("k", lease=3)
            lock.acquire()
            here.kill()
            assert lock.lost.wait(10)
            begin = time.monotonic()
            with pytest.raises(client.NotOwned):
                lock.release()
            assert time.monotonic() - begin < 2
    finally:
        cluster.close()
        here.stop()
        there.stop()


def test_users(start: Callable[..., TestServer], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text(USERS.read_text())
    server = start("--aclfile", str(file))
    app = server.client(username="app", password="change-me-app")
    server.hold("lock:k")
    order: list[bytes] = []
    server.run("ACL SETUSER app resetchannels -subscribe")
    with pytest.raises(client.NoPermission, match="subscribe"):
        # The user may not use the channels of waits.
        Lock(app, "lock:k").acquire()
    server.run("LOCK.RELEASE lock:k holder")
    lock = Lock(app, "lock:k", timeout=10)
    lock.acquire()
    assert lock.owned(), "LOCK.INFO is not permitted, a renewal is"
    lock.extend(10)
    with pytest.raises(client.NoPermission):
        lock.locked()
    lock.release()
    with pytest.raises(redis.exceptions.NoPermissionError) as raised:
        Lock(app, "other").acquire()
    assert "change-me" not in str(raised.value)
    server.run("ACL SETUSER app &lock:tickets:* +publish +subscribe")
    with Server(server.client(username="app", password="change-me-app")) as locks:
        server.hold("lock:k")
        threads = waits(lambda: locks.lock("lock:k"), 3, order)
        wait_for("tickets", lambda: server.stat("tickets") == 3)
        server.run("LOCK.RELEASE lock:k holder")
        join(threads)
    wrong = Lock(server.client(username="app", password="a-secret"), "lock:k", blocking_timeout=1)
    with pytest.raises(client.NotAuthenticated) as refused:
        wrong.acquire()
    assert "secret" not in repr(refused.value) and "app" not in str(refused.value)


def test_without_tickets(start: Callable[..., TestServer]) -> None:
    """A server that takes no tickets grants what is free, and a wait is refused with its words."""
    server = start("--lock.max-tickets", "0")
    with Server(server.client()) as locks:
        with locks.lock("k"), pytest.raises(client.Refused, match="NOTIFY"):
            locks.lock("k").acquire(blocking_timeout=5)
        assert locks.settled() == [] and server.run("EXISTS k") == 0


def test_a_full_server(start: Callable[..., TestServer]) -> None:
    server = start("--lock.max-tickets", "2")
    server.hold()
    redis_client = server.client()
    order: list[bytes] = []
    threads = waits(lambda: Lock(redis_client, "k"), 4, order)
    wait_for("two tickets", lambda: server.stat("tickets") == 2)
    server.run("LOCK.RELEASE k holder")
    join(threads)
    assert len(set(order)) == 4


def test_without_the_module(start: Callable[..., TestServer]) -> None:
    server = start(module=False)
    lock = Lock(server.client(), "k")
    with pytest.raises(client.NotLoaded, match=rf"localhost:{server.port} does not know LOCK.ACQUIRE: load the module"):
        lock.acquire()
    with pytest.raises(redis.exceptions.ResponseError):
        client.Semaphore(server.client(), "s").acquire()


def test_a_unix_socket_and_another_database(start: Callable[..., TestServer], tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "socket")
    server = start("--unixsocket", path)
    with Lock(redis.Redis(unix_socket_path=path, db=3, client_name="worker"), "k"):
        assert server.client(db=3).exists("k") == 1
        assert any(one["name"] == "worker" for one in server.clients())
    with Server.open(f"unix://{path}?db=2") as locks, locks.lock("k"):
        assert server.client(db=2).exists("k") == 1
    with Server.open(f"{server.url}/1") as locks, locks.lock("k"):
        assert server.client(db=1).exists("k") == 1


#: Clients as programs make them.
KINDS: dict[str, dict[str, Any]] = {
    "RESP2": {"protocol": 2},
    "RESP3": {"protocol": 3},
    "decoding": {"decode_responses": True},
    "of one connection": {"single_connection_client": True},
    "a pool of one": {"max_connections": 1},
    "named and probing": {"client_name": "worker", "health_check_interval": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_of_each_kind(server: TestServer, kind: str) -> None:
    options: dict[str, Any] = {"port": server.port, "socket_timeout": 5, **KINDS[kind]}
    is_blocking = "max_connections" in options
    if is_blocking:
        options = {"connection_pool": redis.BlockingConnectionPool(timeout=5, **options)}
    with Server(redis.Redis(**options)) as locks:
        lock = locks.lock("k", timeout=10)
        order: list[bytes] = []
        for other in (locks.lock("k"), locks.lock("k", session=True), locks.lock("k", timeout=10)):
            lock.acquire()
            assert lock.owned() and lock.locked() and locks.multi_lock(["a", "b"]).acquire(blocking=False)
            lock.extend(5)
            threads = waits(lambda other=other: other, 1, order)  # type: ignore[misc]
            wait_for("the ticket", lambda: server.stat("tickets") == 1)
            lock.release()
            join(threads)
            server.run("DEL a b")
        with locks.semaphore("s", limit=1).acquire(), locks.lock("r", session=True, mode=client.Mode.READ):
            assert locks.semaphore("s").info().held == 1  # type: ignore[union-attr]
        locks.latch("l").set(3)
        assert locks.latch("l").count_down() == 2 == locks.latch("l").count()
        assert len(order) == 3 and locks.settled() == []

    async def work() -> None:
        found = dict(options)
        if is_blocking:
            pool = redis.asyncio.BlockingConnectionPool(timeout=5, port=server.port, max_connections=1)
            found = {"connection_pool": pool}
        async with client.asyncio.Server(redis.asyncio.Redis(**found)) as locks:
            held = [locks.lock(f"k{number}", timeout=10) for number in range(20)]
            assert all(await asyncio.gather(*(lock.acquire() for lock in held)))
            # Together in pipelines.
            assert all(await asyncio.gather(*(lock.owned() for lock in held)))
            tasks = [asyncio.create_task(locks.lock(f"k{number}").acquire()) for number in range(20)]
            await until("the tickets", lambda: server.stat("tickets") == 20)
            await asyncio.gather(*(lock.release() for lock in held))
            assert all(await asyncio.gather(*tasks))
            async with locks.lock("bound", session=True):
                pass

    asyncio.run(work())
