"""Where Redis is when no setting says so: reached as Celery itself reaches it. Nothing connects here."""

from __future__ import annotations

import ssl
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection
from kombu.transport.redis import Channel

from throttle import ThrottleError, TokenBucket
from throttle.deployment import deployment
from throttle.settings import Settings
from throttle.smoother import Smoother

CERTS = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/etc/ca.pem", "ssl_keyfile": "/etc/key.pem"}
KEPT = {"socket_keepalive": True, "health_check_interval": 7, "client_name": "celery"}


class Provider(redis.CredentialProvider):
    def get_credentials(self) -> tuple[str]:
        return ("token",)


def app(**conf: object) -> Celery:
    made = Celery("address", set_as_current=False)
    made.conf.update(conf)
    return made


def connection_of(made: Celery) -> Any:
    """The connection that our client would make, unconnected."""
    return deployment(made).store.client.connection_pool.make_connection()


def parameters(connection: Any) -> dict[str, Any]:
    """What it says to the server, and how."""
    names = ("host", "port", "path", "db", "username", "password", "cert_reqs", "ca_certs", "keyfile", "certfile")
    found = {name: getattr(connection, name) for name in (*names, "check_hostname") if hasattr(connection, name)}
    return {**found, "class": type(connection).__name__.replace("SSLConnection", "TLS")}


@pytest.mark.parametrize(
    "conf",
    [
        {"broker_url": "redis://broker:6379/3"},
        {"broker_url": "redis://:p%40ss%2Fword@broker//4"},
        {"broker_url": "redis://user:secret@[::1]:7000/1"},
        {"broker_url": "redis://"},
        {"broker_url": "redis://one:1;redis://two:2"},
        {"broker_url": ["redis://one:1/2", "redis://two:2"]},
        {"broker_url": "redis://broker", "broker_use_ssl": CERTS},
        {"broker_url": "redis://broker", "broker_use_ssl": True},  # which kombu does not take for TLS
        {"broker_url": "rediss://broker:6380/2"},
        {"broker_url": "rediss://broker", "broker_use_ssl": CERTS},
        {"broker_url": "rediss://broker?ssl_cert_reqs=CERT_NONE"},
        {"broker_url": "rediss://user:secret@broker?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem"},
        {"broker_url": "rediss://broker?ssl_cert_reqs=none", "broker_use_ssl": CERTS},
        {"broker_url": "redis+socket:///run/redis.sock?virtual_host=2"},
        {"broker_url": "redis+socket://user:secret@/run/redis.sock"},
        {"broker_url": "redis://broker", "broker_password": "secret", "broker_vhost": "6", "broker_port": 7001},
        {"broker_url": "redis://broker", "broker_write_url": "redis://writes/2"},
    ],
    ids=lambda conf: " ".join(map(str, conf.values()))[:60],
)
def test_our_client_goes_where_kombu_goes_and_as_it_does(conf: dict[str, Any]) -> None:
    made = app(**conf)
    channel = object.__new__(Channel)  # its __init__ connects
    channel.connection = SimpleNamespace(client=made.connection_for_write(), default_port=6379)
    said = channel._connparams()
    theirs = said.pop("connection_class")(**{k: v for k, v in said.items() if k != "max_connections"})
    assert parameters(connection_of(made)) == parameters(theirs)


def test_tls_with_a_plain_url() -> None:
    made = app(broker_url="redis://broker", broker_use_ssl=CERTS)
    pool = deployment(made).store.client.connection_pool
    assert pool.connection_class is redis.SSLConnection
    assert {name: pool.connection_kwargs[name] for name in CERTS} == CERTS


def test_what_the_network_needs_is_taken_from_the_transport_options() -> None:
    timing = {"socket_timeout": 77, "retry_on_timeout": True, "max_connections": 2, "visibility_timeout": 9}
    made = app(broker_url="redis://broker", broker_transport_options={**KEPT, **timing, "global_keyprefix": "mine:"})
    pool = deployment(made).store.client.connection_pool
    assert {name: pool.connection_kwargs.get(name) for name in KEPT} == KEPT
    assert pool.connection_kwargs["socket_timeout"] == 5.0, "ours is throttle_timeout"
    assert not {"retry_on_timeout", "visibility_timeout", "global_keyprefix"} & set(pool.connection_kwargs)
    assert pool.max_connections != 2


def test_keepalive_is_not_for_a_socket_file() -> None:
    connection = connection_of(app(broker_url="redis+socket:///run/redis.sock", broker_transport_options=KEPT))
    assert (connection.path, connection.client_name) == ("/run/redis.sock", "celery")


@pytest.mark.parametrize("url", ["redis://user:secret@broker/1", "redis+socket:///run/redis.sock"])
def test_a_credential_provider(url: str) -> None:
    made = connection_of(app(broker_url=f"{url}?credential_provider={__name__}.Provider", imports=[__name__]))
    assert made.credential_provider.get_credentials() == ("token",)
    assert (made.username, made.password) == (None, None)


def test_the_result_backend_is_reached_as_celery_reaches_it() -> None:
    made = app(
        broker_url="amqp://guest@host//",
        result_backend="redis://user:secret@results/4?client_name=results",
        redis_backend_use_ssl=CERTS,
        redis_socket_keepalive=True,
        redis_backend_health_check_interval=7,
        redis_socket_timeout=77,
    )
    pool = deployment(made).store.client.connection_pool
    expected = {**CERTS, "username": "user", "password": "secret", "host": "results", "db": 4, **KEPT}
    expected |= {"client_name": "results", "socket_timeout": 5.0}
    assert pool.connection_class is redis.SSLConnection
    assert {name: pool.connection_kwargs.get(name) for name in expected} == expected


def test_a_smoother_takes_its_broker_s_tls() -> None:
    connection = Connection("redis://:secret@broker/3", ssl=CERTS)
    pool = Smoother(connection, "in", "out", TokenBucket("1/s"))._store.client.connection_pool
    assert pool.connection_class is redis.SSLConnection
    assert (pool.connection_kwargs["password"], pool.connection_kwargs["db"]) == ("secret", 3)


def test_a_url_of_its_own_takes_nothing_from_the_broker() -> None:
    made = app(broker_url="redis://broker", broker_use_ssl=CERTS, throttle_redis_url="redis://limits/1")
    assert parameters(connection_of(made))["class"] == "Connection"


@pytest.mark.parametrize("url", ["sentinel://broker:26379", "memory://", "amqp://guest@broker//"])
def test_what_is_no_plain_redis_is_refused(url: str) -> None:
    with pytest.raises(ThrottleError, match="throttle_redis_url"):
        Settings.of(app(broker_url=url))


def test_a_broker_url_that_cannot_be_read_shows_no_password() -> None:
    url = "redis://:secret/x@broker/0"
    for make in (lambda: Settings.of(app(broker_url=url)), lambda: Smoother(url, "in", "out", TokenBucket("1/s"))):
        with pytest.raises(ThrottleError, match="quote") as caught:
            make()
        assert "'secret'" not in "".join(traceback.format_exception(caught.value)), "as urllib's own error has it"
