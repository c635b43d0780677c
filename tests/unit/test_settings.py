"""Settings: where Redis is, and what is refused."""

from __future__ import annotations

import traceback

import pytest
import redis
from celery import Celery

from throttle import ThrottleError, throttled
from throttle.deployment import deployment
from throttle.settings import DEFAULTS, Settings
from throttle.store import Store, check_url


def app(**conf: object) -> Celery:
    made = Celery("settings", set_as_current=False)
    made.conf.update({"broker_url": "redis://broker:6379/3", **conf})
    return made


@pytest.mark.parametrize(
    ("conf", "url"),
    [
        ({}, "redis://broker:6379/3"),
        ({"throttle_redis_url": "redis://limits/1"}, "redis://limits/1"),
        ({"broker_url": "redis://one;redis://two"}, "redis://one:6379/0"),
        ({"broker_url": "redis+socket:///run/redis.sock?virtual_host=2"}, "unix:///run/redis.sock?db=2"),
        ({"throttle_redis_url": "redis+socket:///run/redis.sock?virtual_host=2"}, "unix:///run/redis.sock?db=2"),
        ({"throttle_redis_url": "rediss://host/0?ssl_cert_reqs=CERT_NONE"}, "rediss://host/0?ssl_cert_reqs=none"),
        ({"broker_url": "amqp://guest@host//", "result_backend": "redis://results/4"}, "redis://results:6379/4"),
        ({"broker_url": "amqp://guest@host//", "throttle_redis_url": "rediss://limits/1"}, "rediss://limits/1"),
    ],
)
def test_redis_is_the_one_said_else_the_broker_else_the_results(conf: dict[str, object], url: str) -> None:
    assert Settings.of(app(**conf)).redis == url


def test_nothing_configured_names_the_remedy() -> None:
    bare = app(broker_url="memory://")
    with pytest.raises(ThrottleError, match=r'throttle_redis_url = "redis://'):
        Settings.of(bare)

    @throttled("1/s")
    @bare.task
    def task() -> None: ...

    with pytest.raises(ThrottleError, match="throttle_redis_url"):
        task.delay()


def test_a_client_or_a_factory_serves_as_well() -> None:
    client = redis.Redis(port=1)
    assert Store(Settings.of(app(throttle_redis_url=client)).redis).client is client
    assert Store(Settings.of(app(throttle_redis_url=lambda: client)).redis).client is client


def test_the_right_class_of_connection_is_made() -> None:
    made = {url: Store(url).client.connection_pool.connection_class.__name__ for url in ("redis://h", "rediss://h")}
    assert made == {"redis://h": "Connection", "rediss://h": "SSLConnection"}
    assert Store("unix:///run/x").client.connection_pool.connection_class.__name__ == "UnixDomainSocketConnection"


@pytest.mark.parametrize("url", ["amqp://:secret@host", "localhost:6379", ":secret@host/0", "secret:secret@host", ""])
def test_other_urls_are_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ThrottleError, match="redis://") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://:secret/x@host/0", "redis://:secret#x@host", "redis://:secret?x@host:1/0"])
def test_a_password_that_was_not_quoted_is_not_shown(url: str) -> None:
    with pytest.raises(ThrottleError, match="quote") as caught:
        check_url(url)
    shown = "".join(traceback.format_exception(caught.value))
    assert "'secret'" not in shown, "as urllib's own error has it"


def test_settings_show_no_secret() -> None:
    for conf in ({"throttle_redis_url": "redis://:secret@h"}, {"broker_url": "redis://:secret@h"}):
        made = app(throttle_key_secret="secret", **conf)
        assert "secret" not in repr(Settings.of(made)).replace("key_secret", "")
        assert "secret" not in repr(deployment(made).store)


def test_django_s_namespace() -> None:
    django = type("settings", (), {"CELERY_BROKER_URL": "memory://", "CELERY_THROTTLE_REDIS_URL": "redis://limits/7"})
    django.CELERY_THROTTLE_ON_STORE_ERROR = "open"
    made = Celery("django", set_as_current=False)
    made.config_from_object(django, namespace="CELERY")
    settings = Settings.of(made)
    assert (settings.redis, settings.on_store_error) == ("redis://limits/7", "open")


def test_a_policy_that_does_not_exist_is_refused_at_start() -> None:
    with pytest.raises(ThrottleError, match="'park', 'open'"):
        deployment(app(throttle_on_store_error="explode"))


@pytest.mark.parametrize("wrong", [0, -1, True, float("nan"), float("inf"), "soon", None])
def test_a_timeout_that_is_none_is_refused_at_start(wrong: object) -> None:
    with pytest.raises(ThrottleError, match="throttle_timeout"):
        deployment(app(throttle_redis_url="redis://localhost", throttle_timeout=wrong))


def test_every_setting_is_in_the_readme() -> None:
    from tests.fleet import ROOT

    readme = (ROOT / "README.md").read_text()
    assert [name for name in DEFAULTS if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("prefix", ["", "a{b", "}"])
def test_a_prefix_cannot_change_the_slot(prefix: str) -> None:
    with pytest.raises(ThrottleError, match="prefix"):
        deployment(app(throttle_prefix=prefix))
