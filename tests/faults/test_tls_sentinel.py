"""Limiters over TLS, and through a Sentinel whose master moves: real servers, real certificates."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
import redis.asyncio as aioredis
from celery import Celery
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from tests.services import RedisServer, free_port, missing, redis_server
from throttle import AsyncLimiter, Limiter, StoreUnavailable, TokenBucket, throttled

LIMIT = TokenBucket("1000000/s", 10**6)
BUDGET, SLACK = 0.25, 0.1  # s; a handshake that fails takes some of the processor


# -- TLS -----------------------------------------------------------------------------------------------------


class Certificates(NamedTuple):
    """Paths: who signs, what the server has, and what a client has; and somebody else who signs."""

    authority: Path
    server: Path
    client: Path
    other: Path

    @property
    def options(self) -> list[str]:
        server = self.server
        return [
            "--tls-cert-file",
            str(server),
            "--tls-key-file",
            str(server),
            "--tls-ca-cert-file",
            str(self.authority),
        ]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        missing("openssl")
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = (self_signed(folder / f"{name}.pem") for name in ("authority", "other"))
    server = signed(folder / "server.pem", authority, "subjectAltName=DNS:localhost,IP:127.0.0.1")
    client = signed(folder / "client.pem", authority, "extendedKeyUsage=clientAuth")
    return Certificates(authority, server, client, other)


def openssl(*command: str | Path) -> None:
    subprocess.run(["openssl", *command], check=True, capture_output=True)


EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def self_signed(path: Path) -> Path:
    """Key and certificate in one file."""
    key, certificate = path.with_suffix(".key"), path.with_suffix(".crt")
    openssl("req", "-x509", *EC, "-keyout", key, "-out", certificate, "-days", "2", "-subj", f"/CN={path.stem}")
    path.write_text(key.read_text() + certificate.read_text())
    return path


def signed(path: Path, authority: Path, extension: str) -> Path:
    key, request, certificate, said = (path.with_suffix(f".{end}") for end in ("key", "csr", "crt", "ext"))
    said.write_text(extension)
    openssl("req", *EC, "-keyout", key, "-out", request, "-subj", f"/CN={path.stem}")
    by = ("-CA", authority, "-CAkey", authority, "-set_serial", "7", "-days", "2", "-extfile", said)
    openssl("x509", "-req", "-in", request, *by, "-out", certificate)
    path.write_text(key.read_text() + certificate.read_text())
    return path


def speaking_tls(certificates: Certificates, *options: str) -> RedisServer:
    try:
        return redis_server("--tls-port", str(free_port()), *certificates.options, *options)
    except RuntimeError:
        missing("a redis-server that knows TLS")
        raise


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Iterator[RedisServer]:
    server = speaking_tls(certificates, "--tls-auth-clients", "no")
    yield server
    server.remove()


def url(server: RedisServer, authority: Path, more: str = "", host: str = "127.0.0.1") -> str:
    return f"rediss://{host}:{server.option('--tls-port')}/0?ssl_ca_certs={authority}{more}"


def asked(limiter: AsyncLimiter, count: int = 1) -> list[Any]:
    """What it answers, in a loop of its own; errors too."""

    async def one() -> Any:
        began = time.monotonic()
        try:
            said: Any = await limiter.acquire(LIMIT)
        except StoreUnavailable as error:
            said = error
        return time.monotonic() - began, said

    async def main() -> list[Any]:
        async with limiter:
            return [await one() for _ in range(count)]

    return asyncio.run(main())


def asking(limiter: Limiter, count: int = 1) -> list[Any]:
    def one() -> Any:
        began = time.monotonic()
        try:
            said: Any = limiter.acquire(LIMIT)
        except StoreUnavailable as error:
            said = error
        return time.monotonic() - began, said

    return [one() for _ in range(count)]


KINDS: dict[Any, Callable[..., list[Any]]] = {Limiter: asking, AsyncLimiter: asked}
kinds = pytest.mark.parametrize("kind", KINDS)


def test_both_count_together_over_tls(tls: RedisServer, certificates: Certificates) -> None:
    tls.client().flushall()
    limit = TokenBucket("1/h", 5)
    limiter = Limiter(url(tls, certificates.authority), "tls", on_store_error="closed")

    async def main() -> list[int]:
        async with AsyncLimiter(
            url(tls, certificates.authority, host="localhost"), "tls", on_store_error="closed"
        ) as one:
            return [(await one.acquire(limit)).remaining for _ in range(2)]

    assert [limiter.acquire(limit).remaining for _ in range(2)] == [4, 3]
    assert asyncio.run(main()) == [2, 1]
    limiter.refund(limit)
    assert limiter.peek(limit).remaining == 2
    limiter.reset(limit)
    assert [limiter.acquire(limit, cost=cost).allowed for cost in (5, 1, 1)] == [True, False, False]


@kinds
def test_a_client_that_speaks_tls(kind: Any, tls: RedisServer, certificates: Certificates) -> None:
    module: Any = redis if kind is Limiter else aioredis
    port = int(tls.option("--tls-port"))
    client = module.Redis(port=port, ssl=True, ssl_ca_certs=str(certificates.authority))
    blocking = module.BlockingConnectionPool.from_url(url(tls, certificates.authority), max_connections=2)
    for source in (client, lambda: client, module.Redis(connection_pool=blocking)):
        [(_, said)] = KINDS[kind](kind(source, "client", on_store_error="closed"))
        assert said.policies


@kinds
@pytest.mark.parametrize("way", ["open", "closed", "local"])
def test_another_authority_fails_clearly_within_the_budget(
    kind: Any, way: str, tls: RedisServer, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    own = url(tls, certificates.other, f"&client_name={way}")  # limiters of one URL know together that it fails
    answers = KINDS[kind](kind(own, "wrong", on_store_error=way), 6)
    assert max(took for took, _ in answers) <= BUDGET + SLACK
    first = answers[0][1]
    if way == "closed":
        assert isinstance(first, StoreUnavailable)
        assert "certificate verify failed" in str(first)
    else:
        assert all(said.allowed for _, said in answers)
        assert bool(first.policies) is (way == "local")
    [line] = [record for record in caplog.records if record.name.startswith("throttle")]
    assert "certificate verify failed" in line.getMessage()


@kinds
def test_another_name_than_the_certificates(kind: Any, tls: RedisServer, certificates: Certificates) -> None:
    """127.0.0.2 is this machine too, and is not what the certificate is for."""
    tls.client().config_set("bind", "127.0.0.1 127.0.0.2")
    [(_, said)] = KINDS[kind](kind(url(tls, certificates.authority, host="127.0.0.2"), on_store_error="closed"))
    assert "doesn't match" in str(said) or "mismatch" in str(said)
    unchecked = url(tls, certificates.authority, "&ssl_check_hostname=false", "127.0.0.2")
    [(_, said)] = KINDS[kind](kind(unchecked, on_store_error="closed"))
    assert said.policies


@kinds
def test_one_speaks_tls_and_the_other_does_not(kind: Any, tls: RedisServer, certificates: Certificates) -> None:
    plain = f"redis://127.0.0.1:{tls.option('--tls-port')}/0"
    wrapped = f"rediss://127.0.0.1:{tls.port}/0?ssl_ca_certs={certificates.authority}"
    for source in (plain, wrapped):
        for took, said in KINDS[kind](kind(source, "mixed", on_store_error="closed"), 4):
            assert isinstance(said, StoreUnavailable)
            assert took <= BUDGET + SLACK


@kinds
def test_a_server_that_stands_still_before_the_handshake(
    kind: Any, tls: RedisServer, certificates: Certificates
) -> None:
    assert tls.process is not None
    os.kill(tls.process.pid, signal.SIGSTOP)
    try:
        answers = KINDS[kind](kind(url(tls, certificates.authority), f"still {kind}", on_store_error="closed"), 4)
    finally:
        os.kill(tls.process.pid, signal.SIGCONT)
    assert all(isinstance(said, StoreUnavailable) for _, said in answers)
    assert max(took for took, _ in answers) <= BUDGET + SLACK


def test_closing_does_not_wait_for_a_server_that_stands_still(tls: RedisServer, certificates: Certificates) -> None:
    """TLS has a farewell, for whose answer asyncio would wait 30 s: an app is to end."""

    async def main() -> float:
        limiter = AsyncLimiter(url(tls, certificates.authority), "closing", on_store_error="closed")
        await limiter.acquire(LIMIT)
        os.kill(tls.process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
        began = time.monotonic()
        try:
            await limiter.aclose()
            return time.monotonic() - began
        finally:
            os.kill(tls.process.pid, signal.SIGCONT)  # type: ignore[union-attr]

    assert asyncio.run(main()) < 1


@kinds
def test_clients_that_must_have_a_certificate(kind: Any, certificates: Certificates) -> None:
    server = speaking_tls(certificates, "--tls-auth-clients", "yes")
    try:
        mine = f"&ssl_certfile={certificates.client}&ssl_keyfile={certificates.client}"
        [(_, said)] = KINDS[kind](kind(url(server, certificates.authority, mine), "mutual", on_store_error="closed"))
        assert said.policies
        [(took, said)] = KINDS[kind](kind(url(server, certificates.authority), "mutual", on_store_error="closed"))
        assert isinstance(said, StoreUnavailable)
        assert took <= BUDGET + SLACK
    finally:
        server.remove()


def test_tasks_wait_in_a_redis_behind_tls(tls: RedisServer, certificates: Certificates) -> None:
    tls.client().flushall()
    app = Celery("tls", broker=tls.url(1), set_as_current=False)
    app.conf.update(throttle_redis_url=url(tls, certificates.authority), task_default_queue="tls")

    @throttled("1/h")
    @app.task
    def export(number: int) -> None: ...

    for number in range(3):
        export.delay(number)
    assert export.throttle.depth() == 2
    assert tls.client(1).llen("tls") == 1
    assert export.throttle.purge() == 2


# -- Sentinel ------------------------------------------------------------------------------------------------


class Watched:
    """A master, its replica, and a Sentinel that watches them under the name "main"."""

    def __init__(self, folder: Path) -> None:
        self.servers = [redis_server("--repl-diskless-sync-delay", "0") for _ in range(2)]
        self.port = free_port()
        first, second = self.servers
        second.client().replicaof("127.0.0.1", first.port)
        until(lambda: second.client().info("replication")["master_link_status"] == "up", 20)  # type: ignore[index]
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\ndir {folder}\nsentinel monitor main 127.0.0.1 {first.port} 1\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 4000\n"
        )
        self.process = subprocess.Popen([first.executable, config, "--sentinel"], stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port)
        until(lambda: self.client.execute_command("SENTINEL", "REPLICAS", "main") != [], 20)

    @property
    def master(self) -> int:
        return int(self.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])

    def remove(self) -> None:
        self.process.kill()
        self.process.wait()
        for server in self.servers:
            server.remove()


def until(true: Callable[[], bool], seconds: float) -> float:
    """How long it took to become true; fails after so many seconds."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(redis.RedisError):
            if true():
                return time.monotonic() - began
        assert time.monotonic() - began < seconds
        time.sleep(0.01)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.remove()


class Traffic:
    """Questions without a pause, from threads and from a loop; when each was answered, and when not."""

    def __init__(self, port: int) -> None:
        self.served: dict[str, list[float]] = {"sync": [], "async": []}
        self.failed: list[float] = []
        self._port, self._stop = port, False
        self._threads = [*(threading.Thread(target=self._ask) for _ in range(2)), threading.Thread(target=self._loop)]

    def __enter__(self) -> Traffic:
        sentinel = Sentinel([("127.0.0.1", self._port)], socket_timeout=0.5)
        self._limiter = Limiter(sentinel.master_for("main"), "main", on_store_error="closed", denials=0)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._stop:
            try:
                self._limiter.acquire(LIMIT)
                self.served["sync"].append(time.monotonic())
            except StoreUnavailable:
                self.failed.append(time.monotonic())
            time.sleep(0.005)

    def _loop(self) -> None:
        asyncio.run(self._aask())

    async def _aask(self) -> None:
        sentinel = AsyncSentinel([("127.0.0.1", self._port)], socket_timeout=0.5)
        async with AsyncLimiter(sentinel.master_for("main"), "main", on_store_error="closed", denials=0) as limiter:
            while not self._stop:
                try:
                    await limiter.acquire(LIMIT)
                    self.served["async"].append(time.monotonic())
                except StoreUnavailable:
                    self.failed.append(time.monotonic())
                await asyncio.sleep(0.005)

    def gap(self, kind: str) -> float:
        """The longest time without an answer, s."""
        times = self.served[kind]
        return max(after - before for before, after in itertools.pairwise(times))


@pytest.mark.slow
def test_a_failover_is_followed_within_two_seconds(watched: Watched) -> None:
    first, second = watched.servers
    with Traffic(watched.port) as traffic:
        time.sleep(0.5)
        watched.client.execute_command("SENTINEL", "FAILOVER", "main")
        until(lambda: watched.master == second.port, 20)
        # Sentinel leaves the old master alone for some seconds; what is connected to it goes on asking it.
        until(lambda: first.client().info("replication")["role"] == "slave", 40)  # type: ignore[index]
        demoted = time.monotonic()
        time.sleep(3)
    assert max(traffic.gap(kind) for kind in traffic.served) <= 2
    assert [at for at in traffic.failed if at > demoted + 2] == []
    for times in traffic.served.values():
        assert len([at for at in times if at > demoted + 2]) > 20
    assert second.client().info("commandstats")["cmdstat_evalsha"]["calls"] > 40  # type: ignore[index]


@pytest.mark.slow
def test_a_master_that_is_killed(watched: Watched) -> None:
    """Sentinel needs half a second to notice and up to two to choose; then requests go on within two."""
    first, second = watched.servers
    with Traffic(watched.port) as traffic:
        time.sleep(0.5)
        first.stop()
        until(lambda: second.client().info("replication")["role"] == "master", 20)  # type: ignore[index]
        until(lambda: watched.master == second.port, 20)
        moved = time.monotonic()
        time.sleep(4)
    assert traffic.failed, "there was none for a while"
    assert [at for at in traffic.failed if at > moved + 2] == []
    assert max(traffic.gap(kind) for kind in traffic.served) <= 6
    for times in traffic.served.values():
        assert len([at for at in times if at > moved + 2]) > 20
