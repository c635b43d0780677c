"""One module per contender, run by its own Python.

Each has `app`; `submit(n)` (20/s in all) and, where the contender counts keys apart, `submit_tenant(who, n)`
(20/s each); and, where there is such a thing, `decide(client)`, which returns one call to be timed that asks a
limit that never bites on that client. `prepare()` and `dispatch()` are run if there. Where requests can be asked of,
`asks(client, quota)` returns every way to ask whether one more of `quota` an hour may pass, as `common.Ask`.
"""
