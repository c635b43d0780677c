"""Where Redis is when no setting says so: with the broker, else with the results, and reached as Celery reaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kombu.utils.imports import symbol_by_name
from kombu.utils.url import as_url, url_to_parts
from redis import SSLConnection

from throttle.errors import ThrottleError
from throttle.store import QUOTE

#: What broker_transport_options say of our connections too. Timeouts, retries and the size of the pool are kombu's
#: own: ours follow throttle_timeout, and a script that is repeated may take twice.
TRANSPORT = ("socket_keepalive", "socket_keepalive_options", "health_check_interval", "client_name")
LOGIN = ("username", "password", "credential_provider")


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis and how to connect to it.

    Attributes:
        source: URL, client, or factory of a client.
        options: keywords of the connection, for a URL.
    """

    source: Any = field(repr=False)  # what the user says may hold a password
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def connection_of(make: Callable[[], Any]) -> Any:
    """The kombu connection that `make` makes.

    Raises:
        ThrottleError: its URL cannot be read; kombu's own text would show a piece of the password.
    """
    try:
        return make()
    except ValueError:
        raise ThrottleError(f"scheme, host or port of the broker's URL cannot be read; {QUOTE}") from None


def of_broker(connection: Any) -> Address | None:
    """The Redis that a kombu connection goes to, found without connecting; `None` if it goes elsewhere."""
    if connection.transport_cls not in ("redis", "rediss"):
        return None
    options = connection.transport_options or {}
    said: dict[str, Any] = {name: options.get(name) for name in TRANSPORT}
    said |= {"host": connection.hostname, "port": connection.port, "db": connection.virtual_host}
    said |= {"username": connection.userid, "password": connection.password}
    said["credential_provider"] = getattr(connection, "credential_provider", None)
    if isinstance(connection.ssl, Mapping) and connection.ssl:  # kombu takes no other value for TLS
        said |= {**connection.ssl, "connection_class": SSLConnection}
    if "://" in str(said["host"]):  # socket:///path, what kombu leaves of redis+socket:///path
        parts = url_to_parts(said["host"])
        said |= {"path": f"/{parts.path}", "username": parts.username, "password": parts.password}
        said |= {"db": parts.query.get("virtual_host"), **parts.query}
    return _address(said)


def of_results(app: Any) -> Address | None:
    """The Redis of an app's result backend; `None` if that is another kind."""
    scheme = str(app.conf.result_backend or "").partition("://")[0]
    return _address(app.backend.connparams) if scheme in ("redis", "rediss", "redis+socket") else None


def _address(said: Mapping[str, Any]) -> Address:
    """Of the parameters of a connection, as kombu and Celery call them."""
    tls = issubclass(said.get("connection_class") or object, SSLConnection)
    options = {
        name: value
        for name, value in said.items()
        if value not in (None, "") and (name in TRANSPORT + LOGIN or (tls and name.startswith("ssl_")))
    }
    provider = options.get("credential_provider")
    if provider is not None:  # redis-py takes it or a password, not both
        options = {name: value for name, value in options.items() if name not in LOGIN}
        options["credential_provider"] = symbol_by_name(provider)() if isinstance(provider, str) else provider
    db = str(said.get("db") or 0).strip("/") or "0"
    if said.get("path"):
        options = {name: value for name, value in options.items() if not name.startswith("socket_keepalive")}
        return Address(f"unix://{quote(said['path'])}?db={db}", options)
    host, port = said.get("host") or "127.0.0.1", said.get("port") or 6379
    return Address(as_url("rediss" if tls else "redis", host, port, path=db), options)
