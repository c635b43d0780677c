"""The usual recipe: a token bucket in Lua, and `self.retry(countdown=…)` with the wait it tells."""

from __future__ import annotations

from benchmarks.peers.apps.common import make_app, started, store

app = make_app()
GCRA = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local wait = tat - (burst - 1) * interval - now
if wait > 0 then return tostring(wait) end
redis.call('SET', KEYS[1], string.format('%.6f', tat + interval), 'PX', math.ceil((tat + interval - now) * 1000) + 1000)
return '0'
"""
bucket = store().register_script(GCRA)


def limited(task, key):
    wait = float(bucket(keys=[key], args=[1 / 20, 1]))
    if wait > 0:
        raise task.retry(countdown=wait)


@app.task(name="send", bind=True, max_retries=None)
def send(self, n):
    limited(self, "bucket:send")
    started("send", n)


@app.task(name="export", bind=True, max_retries=None)
def export(self, tenant, n):
    limited(self, f"bucket:{tenant}")
    started("export", f"{tenant}:{n}")


def submit(n):
    send.delay(n)


def submit_tenant(who, n):
    export.delay(who, n)


def decide(client):
    ask = client.register_script(GCRA)
    return lambda: float(ask(keys=["decide"], args=[1e-6, 1_000_000]))
