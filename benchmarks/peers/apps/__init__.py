"""One module per contender, run by its own Python.

Each has `app`; `submit(n)` (20/s in all) and, where the contender counts keys apart, `submit_tenant(who, n)`
(20/s each); and, where there is such a thing, `decide(client)`, which returns one call to be timed that asks a
limit that never bites on that client. `prepare()` and `dispatch()` are run if there.
"""
