"""B75, B76: chords, groups, chains, links, hooks and signals come out as Celery's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from tests.fleet import Fleet


def fallback(fleet_of: Callable[..., Fleet], folder: Path) -> Fleet:
    """Results in files: no native chords, so Celery polls with chord_unlock."""
    conf = '{"result_chord_retry_interval": 0.3}'
    return fleet_of(PROJECT_RATE="200/s", PROJECT_RESULTS=f"file://{folder}", PROJECT_CONF=conf)


@pytest.fixture(params=["redis", "chord_unlock"])
def some_fleet(request: pytest.FixtureRequest, fleet_of: Callable[..., Fleet], tmp_path: Path) -> Fleet:
    if request.param == "redis":
        fleet = fleet_of(PROJECT_RATE="200/s")
    else:
        (tmp_path / "results").mkdir()
        fleet = fallback(fleet_of, tmp_path / "results")
    fleet.worker()
    return fleet


def parts(project: Any, count: int, **options: Any) -> list[Any]:
    return [project.part.s(n).set(**options) for n in range(count)]


def test_b75_a_chord_of_100(some_fleet: Fleet) -> None:
    project = some_fleet.project
    result = chord(parts(project, 100))(project.total.s())
    assert result.get(timeout=30) == list(range(100))
    starts = some_fleet.record("part")
    assert sorted(int(start.what) for start in starts) == list(range(100))
    assert len(some_fleet.record("total")) == 1
    at = sorted(start.at for start in starts)
    assert at[-1] - at[0] >= 99 / 200 * 0.98


def test_b75_one_part_fails(some_fleet: Fleet) -> None:
    """As Celery's rule has it: the body does not run, its errback does, once."""
    project = some_fleet.project
    header = [*parts(project, 19), project.part.s(19, fail=True)]
    result = chord(header)(project.total.s().on_error(project.on_error.s()))
    with pytest.raises(Exception, match="part 19 fails"):
        result.get(timeout=30)
    assert some_fleet.record("total") == []
    some_fleet.started(1, name="on_error")
    assert len({start.what for start in some_fleet.record("part")}) == 20


def test_b75_one_part_expires_while_parked(some_fleet: Fleet) -> None:
    project = some_fleet.project
    project.part.throttle.set_rate("1/s")
    header = [*parts(project, 2), project.part.s(99).set(expires=1.5), project.part.s(100)]
    result = chord(header)(project.total.s())
    time.sleep(1.0)
    while project.part.throttle.depth() > 1:  # until the third has expired in the backlog
        time.sleep(0.05)
    project.part.throttle.reset_rate()
    with pytest.raises(Exception, match=r"(?i)expired|revoked"):
        result.get(timeout=30)
    assert some_fleet.record("total") == []
    some_fleet.started(3, name="part")
    assert sorted(start.what for start in some_fleet.record("part")) == ["0", "1", "100"]


def test_b75_one_part_is_revoked_while_parked(some_fleet: Fleet) -> None:
    project = some_fleet.project
    project.part.throttle.set_rate(0)
    header = [*parts(project, 5), project.part.s(99).set(task_id="gone")]
    result = chord(header)(project.total.s())
    project.app.control.revoke("gone")
    time.sleep(0.5)
    project.part.throttle.reset_rate()
    with pytest.raises(Exception, match=r"(?i)revoked"):
        result.get(timeout=30)
    assert some_fleet.record("total") == []
    assert "99" not in [start.what for start in some_fleet.record("part")]


def test_b76_group_chain_and_links(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="100/s")
    project = fleet.project
    fleet.worker()
    together = group(parts(project, 20)).apply_async()
    in_turn = chain(project.part.s(1), project.send.s(), project.part.si(2)).apply_async()
    linked = project.send.apply_async(("linked",), link=project.plain.si("link"), link_error=project.on_error.s())
    failing = project.part.apply_async((7, True), link=project.plain.si("never"), link_error=project.on_error.s())
    assert together.get(timeout=20) == list(range(20))
    assert in_turn.get(timeout=20) == 2
    assert linked.get(timeout=20) == "linked"
    with pytest.raises(ValueError, match="part 7 fails"):
        failing.get(timeout=20)
    fleet.started(1, name="plain")
    fleet.started(1, name="on_error")
    time.sleep(0.3)
    assert [start.what for start in fleet.record("plain")] == ["link"]
    assert len(fleet.record("on_error")) == 1
    assert together.parent is None
    assert in_turn.parent.parent.get(timeout=5) == 1


def test_b76_each_hook_and_signal_is_called_once(fleet_of: Callable[..., Fleet]) -> None:
    """Parked at submit, parked at the gate and run at once: the same calls as without us."""
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_SIGNALS="1")
    project = fleet.project
    fleet.worker()
    project.hooked.throttle.set_rate(0)
    ids = [project.hooked.delay(1).id, project.app.send_task("hooked", (2,)).id]
    failing = project.hooked.delay(3, fail=True).id
    fleet.until(lambda: project.hooked.throttle.depth() == 3, 5, "3 parked")
    assert fleet.events() == []
    project.hooked.throttle.reset_rate()
    fleet.started(3)
    fleet.until(lambda: fleet.events().count("task_postrun") == 3, 5, "3 postruns", fleet.events)
    time.sleep(0.2)
    for id in ids:
        assert sorted(fleet.events(id)) == sorted(
            ["task_prerun", "before_start", "task_success", "on_success", "after_return", "task_postrun"]
        )
    assert sorted(fleet.events(failing)) == sorted(
        ["task_prerun", "before_start", "task_failure", "on_failure", "after_return", "task_postrun"]
    )


def test_b72_expires_while_parked(fleet_of: Callable[..., Fleet]) -> None:
    """Never runs, is REVOKED, spends nothing, and says so once; all forms of `expires`."""
    fleet = fleet_of(PROJECT_RATE="1/3s", PROJECT_SIGNALS="1")
    project = fleet.project
    fleet.worker()
    head = project.send.delay("first")
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
    results = [
        project.send.apply_async(("never",), expires=expires) for expires in (1, 0.5, soon, soon.isoformat())
    ] + [project.app.send_task("send", ("never",), expires=1)]
    last = project.send.delay("last")
    for result in results:
        fleet.until(lambda result=result: result.state == "REVOKED", 5, "REVOKED", lambda result=result: result.state)
    assert last.get(timeout=5) == "last"
    assert head.get(timeout=5) == "first"
    starts = fleet.record()
    assert [start.what for start in starts] == ["first", "last"]
    assert 3.0 - 0.04 <= starts[1].at - starts[0].at < 4.5  # five starts between would have taken 15 s more
    for result in results:
        assert fleet.events(result.id) == ["task_revoked"]
    assert project.send.throttle.backlog.flying() == 0
