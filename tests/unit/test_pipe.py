"""The connection that questions of a loop share: each hears its own answer, or that it gets none; never another's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio as aioredis
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions
from redis.exceptions import ResponseError

from tests.services import RedisServer
from throttle.pipe import Short, read
from throttle.scripts import packed
from throttle.together import MOST, Together
from throttle.wire import taking

# -- replies -------------------------------------------------------------------------------------------------

replies = st.recursive(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40)),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


def written(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n%b" % (len(reply), b"".join(map(written, reply)))


@given(replies, st.binary(max_size=5))
def test_what_was_written_is_read_and_no_byte_more(reply: Any, more: bytes) -> None:
    data = written(reply)
    assert read(b"xy" + data + more, 2) == (reply, 2 + len(data))


@given(replies)
def test_a_piece_of_a_reply_is_none_yet(reply: Any) -> None:
    data = written(reply)
    for cut in range(len(data)):
        with pytest.raises(Short):
            read(data[:cut], 0)


def test_other_replies() -> None:
    assert read(b"+OK\r\n", 0) == (b"OK", 5)
    assert read(b"_\r\n", 0) == (None, 3)
    assert read(b"*-1\r\n", 0) == (None, 5)
    error, end = read(b"-NOSCRIPT none\r\n", 0)
    assert (type(error), str(error), end) == (ResponseError, "NOSCRIPT none", 16)


@given(st.binary(min_size=1, max_size=60))
def test_what_is_no_reply_is_said_to_be_none(data: bytes) -> None:
    try:
        _, end = read(data, 0)
        assert 0 < end <= len(data)
    except (Short, ValueError):
        pass


# -- a connection --------------------------------------------------------------------------------------------

PING = packed("PING")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What redis-py asks when it connects (CLIENT SETINFO twice, and HELLO where it speaks RESP3)."""
    while True:
        line = await reader.readline()
        if line.startswith(b"*"):
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            if words == [b"PING"]:
                return
            writer.write(b"*0\r\n" if words[0] == b"HELLO" else b"+OK\r\n")


async def talked(talk: Talk, ask: Callable[[Together], Awaitable[Any]], timeout: float = 5.0) -> list[Any]:
    """What `ask` got of a server that talks so on each connection, after the first PING; and how many there were."""
    met = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        await greeted(reader, writer)
        await talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = aioredis.ConnectionPool(port=port, max_connections=1, protocol=2)
    together = Together(taking(pool), pool.release, timeout)
    try:
        return [await ask(together), met]
    finally:
        await pool.disconnect()
        server.close()


async def all_of(together: Together, count: int) -> list[Any]:
    return await asyncio.gather(*(together.ask(PING) for _ in range(count)), return_exceptions=True)


def test_answers_in_pieces() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b":1\r\n$3\r\na\r\n\r\n:3\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    assert asyncio.run(talked(slowly, lambda together: all_of(together, 3))) == [[1, b"a\r\n", 3], 1]


def test_a_word_that_nobody_asked_for_is_nobodys_answer() -> None:
    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b":1\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b":666\r\n")

    async def ask(together: Together) -> list[Any]:
        first = await together.ask(PING)
        await asyncio.sleep(0.05)
        return [first, await together.ask(PING)]

    assert asyncio.run(talked(proxy, ask)) == [[1, 1], 2]


@pytest.mark.parametrize("said", [b">2\r\n+invalidate\r\n*0\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$x\r\n"])
def test_what_makes_no_sense_ends_the_connection_and_no_more(said: bytes) -> None:
    talks = [said, b":1\r\n"]

    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(talks.pop(0))

    async def ask(together: Together) -> list[Any]:
        return [await all_of(together, 2), await together.ask(PING)]

    (failed, after), met = asyncio.run(talked(strange, ask))
    assert [type(one) for one in failed] == [exceptions.ConnectionError] * 2
    assert (after, met) == (1, 2)


def test_those_that_wait_when_the_connection_ends_go_over_the_next() -> None:
    async def main() -> list[Any]:
        met = asyncio.Event()

        async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if met.is_set():
                writer.write(b":2\r\n")
                return
            met.set()
            await asyncio.sleep(0.05)
            writer.close()

        async def ask(together: Together) -> list[Any]:
            one = asyncio.ensure_future(together.ask(PING))
            await met.wait()
            return await asyncio.gather(one, together.ask(PING), return_exceptions=True)

        return await talked(ends, ask)

    (lost, other), met = asyncio.run(main())
    assert (type(lost), other, met) == (exceptions.ConnectionError, 2, 2)


@pytest.mark.parametrize("error", ["READONLY no", "LOADING yes", "CLUSTERDOWN so"])
def test_a_server_in_trouble_is_left_once_all_is_heard(error: str) -> None:
    talks = [f"-{error}\r\n:1\r\n".encode(), b":2\r\n"]

    async def troubled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(talks.pop(0))

    async def ask(together: Together) -> list[Any]:
        return [await all_of(together, 2), await together.ask(PING)]

    (said, after), met = asyncio.run(talked(troubled, ask))
    assert isinstance(said[0], exceptions.RedisError)
    assert (said[1], after, met) == (1, 2, 2)


def test_an_error_of_one_question_is_that_ones_alone() -> None:
    async def partly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-NOSCRIPT no\r\n:1\r\n-ERR wrong\r\n:2\r\n")

    said, met = asyncio.run(talked(partly, lambda together: all_of(together, 4)))
    assert [type(one) for one in said] == [exceptions.NoScriptError, int, ResponseError, int]
    assert met == 1


# -- time ----------------------------------------------------------------------------------------------------


def test_each_waits_its_own_time_and_no_longer() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def later(together: Together, seconds: float) -> float:
        await asyncio.sleep(seconds)
        begun = time.monotonic()
        with pytest.raises(exceptions.TimeoutError):
            await together.ask(PING)
        return time.monotonic() - begun

    async def ask(together: Together) -> list[float]:
        return await asyncio.gather(*(later(together, n * 0.05) for n in range(6)))

    waits, _ = asyncio.run(talked(silent, ask, timeout=0.2))
    assert max(waits) < 0.25
    assert waits[0] > 0.19


def test_a_loop_that_stood_still_hears_the_answers_that_came_meanwhile(server: RedisServer) -> None:
    async def main() -> list[Any]:
        pool = aioredis.ConnectionPool(port=server.port)
        together = Together(taking(pool), pool.release, 0.1)
        await together.ask(PING)
        waiting = asyncio.gather(*(together.ask(PING) for _ in range(3)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # they have left
        time.sleep(0.3)
        said = await waiting
        await pool.disconnect()
        return said

    assert asyncio.run(main()) == [b"PONG"] * 3


@pytest.mark.parametrize("turns", range(6))
def test_a_loop_that_stands_still_at_any_moment_fails_nobody(server: RedisServer, turns: int) -> None:
    async def main() -> Any:
        pool = aioredis.ConnectionPool(port=server.port)
        together = Together(taking(pool), pool.release, 0.1)
        await together.ask(PING)
        waiting = asyncio.ensure_future(together.ask(PING))
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(0.2)
        said = await waiting
        await pool.disconnect()
        return said

    assert asyncio.run(main()) == b"PONG"


def test_a_loop_whose_turns_are_long_ends_the_wait_too(own_server: RedisServer) -> None:
    """Each look at the clock comes late; one more is allowed for that, and no third."""

    async def main() -> float:
        pool = aioredis.ConnectionPool(port=own_server.port)
        together = Together(taking(pool), pool.release, 0.1)
        await together.ask(PING)
        own_server.client().execute_command("CLIENT", "PAUSE", 1500, "ALL")
        begun = time.monotonic()
        waiting = asyncio.ensure_future(together.ask(PING))
        while not waiting.done() and time.monotonic() < begun + 1:
            time.sleep(0.065)
            await asyncio.sleep(0)
        with pytest.raises(exceptions.TimeoutError):
            await waiting
        await pool.disconnect()
        return time.monotonic() - begun

    assert asyncio.run(main()) < 0.5


def test_who_waits_behind_many_that_have_gone_is_not_forgotten(server: RedisServer) -> None:
    async def main() -> Any:
        pool = aioredis.ConnectionPool(port=server.port)
        together = Together(taking(pool), pool.release, 1.0)
        first = together.ask(PING)  # it opens the connection meanwhile
        gone = [together.ask(PING) for _ in range(3 * MOST)]
        last = together.ask(PING)
        for one in gone:
            one.cancel()
        said = [await first, await asyncio.wait_for(last, 0.5)]
        assert await together.close() is None
        await pool.disconnect()
        return said

    assert asyncio.run(main()) == [b"PONG"] * 2


def test_who_goes_before_the_question_leaves_is_charged_nothing(server: RedisServer) -> None:
    key = "never-left"

    async def main() -> Any:
        pool = aioredis.ConnectionPool(port=server.port)
        together = Together(taking(pool), pool.release, 1.0)
        asked = [together.ask(packed("INCR", key)) for _ in range(10)]
        for one in asked[:9]:
            one.cancel()
        said = await asked[9]
        await pool.disconnect()
        return said

    server.client().delete(key)
    assert asyncio.run(main()) == 1


def test_an_error_that_redis_py_cannot_read_is_an_error_all_the_same() -> None:
    async def partly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-MOVED\r\n-MOVED 12\r\n-\r\n:1\r\n")

    said, met = asyncio.run(talked(partly, lambda together: all_of(together, 4)))
    assert [isinstance(one, ResponseError) for one in said] == [True, True, True, False]
    assert met == 1


def test_lists_without_end_end_the_connection() -> None:
    talks = [b"*1\r\n" * 5000 + b":1\r\n", b":1\r\n"]

    async def deep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(talks.pop(0))

    async def ask(together: Together) -> list[Any]:
        return [await all_of(together, 1), await together.ask(PING)]

    (failed, after), met = asyncio.run(talked(deep, ask))
    assert (type(failed[0]), after, met) == (exceptions.ConnectionError, 1, 2)


def test_who_goes_leaves_the_others_their_answers(server: RedisServer) -> None:
    async def main() -> list[Any]:
        pool = aioredis.ConnectionPool(port=server.port)
        together = Together(taking(pool), pool.release, 1.0)
        asked = [asyncio.ensure_future(together.ask(packed("ECHO", n))) for n in range(200)]
        for n in range(0, 200, 3):
            asked[n].cancel()
        await asyncio.sleep(0)
        for n in range(0, 200, 7):
            asked[n].cancel()
        said = await asyncio.gather(*asked, return_exceptions=True)
        await pool.disconnect()
        return said

    for n, said in enumerate(asyncio.run(main())):
        assert isinstance(said, asyncio.CancelledError) if n % 3 == 0 or n % 7 == 0 else said == b"%d" % n


def test_the_pool_has_its_place_back(server: RedisServer) -> None:
    """A pool of one, each of whose connections is closed by the server."""

    async def main() -> int:
        pool = aioredis.ConnectionPool(port=server.port, max_connections=1)
        together = Together(taking(pool), pool.release, 1.0)
        lost = 0
        for _ in range(20):
            answers = [together.ask(packed("CLIENT", "ID")), together.ask(packed("QUIT")), together.ask(PING)]
            said = await asyncio.gather(*answers, return_exceptions=True)
            lost += isinstance(said[2], exceptions.ConnectionError)
        await pool.disconnect()
        return lost

    assert asyncio.run(main()) == 20
