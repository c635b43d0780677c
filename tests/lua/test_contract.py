"""Header and body of each script say the same, and the rules that can be read off the text hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from throttle.scripts import expanded

FOLDER = Path(__file__).parent.parent.parent / "lua"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.lua"))
FILES = sorted(FOLDER.glob("*.lua")) + sorted((FOLDER / "lib").glob("*.lua"))

#: All commands that scripts use. Each is in Redis 6.2; an ACL for the library needs these and no more.
COMMANDS = {
    "TIME", "PUBLISH", "GET", "SET", "DEL", "EXISTS", "PTTL", "PEXPIRE", "PEXPIREAT",
    "HGET", "HMGET", "HSET", "HSETNX", "HDEL", "HEXISTS", "HGETALL", "HKEYS", "HINCRBY",
    "ZADD", "ZREM", "ZSCORE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE",
    "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK",
}  # fmt: skip
KEYLESS = {"TIME", "PUBLISH"}

CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'\s*(?:,\s*([^,()]+(?:\[[^\]]*\])?))?")


def header(name: str) -> dict[str, str]:
    """The parts of a script's contract: PURPOSE, KEYS, ARGV, REPLY."""
    parts, current = {"PURPOSE": ""}, "PURPOSE"
    for line in (FOLDER / f"{name}.lua").read_text().splitlines():
        if not line.startswith("--") or line.startswith("-- @include"):
            break
        word = re.match(r"-- (KEYS|ARGV|REPLY) ", line)
        current = word[1] if word else current
        parts[current] = parts.get(current, "") + " " + line.removeprefix("--").strip().removeprefix(current).strip()
    return parts


def code(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text)


FUNCTION = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)


def live(name: str) -> str:
    """The script as Redis gets it, without functions that nothing in it calls."""
    text = code(expanded(name)) + "\n"
    functions = {found[1]: found[0] for found in FUNCTION.finditer(text)}
    kept = FUNCTION.sub("", text)
    while True:
        called = [one for one in functions if re.search(rf"\b{one}\(", kept)]
        if not called:
            return kept
        kept += "".join(functions.pop(one) for one in called)


def fixed_arguments(said: str) -> int:
    """How many arguments stand before those that repeat."""
    plain = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", said))
    if plain.strip().startswith("one text"):
        return 1
    fixed = re.split(r",?\s*then ", plain)[0].strip()
    return 0 if fixed.startswith("the ids") else len(fixed.split(","))


@pytest.mark.parametrize("name", SCRIPTS)
def test_header_is_complete(name: str) -> None:
    parts = header(name)
    assert set(parts) == {"PURPOSE", "KEYS", "ARGV", "REPLY"}
    assert parts["PURPOSE"].strip().startswith(f"{name}: ")


@pytest.mark.parametrize("name", SCRIPTS)
def test_arguments_used_are_arguments_declared(name: str) -> None:
    said, used = header(name)["ARGV"], live(name)
    highest = max((int(n) for n in re.findall(r"ARGV\[(\d+)\]", used)), default=0)
    assert highest == fixed_arguments(said)
    repeated = re.search(r"for \w+ = (\d+), #ARGV(?:, (\d+))?", used)
    if repeated:
        assert int(repeated[1]) == highest + 1
        names = re.split(r"for each \w+: ", re.sub(r"\([^()]*\)", "", said))[-1]
        assert int(repeated[2] or 1) == (len(names.split(",")) if "for each" in said else 1)


def test_what_one_text_says_is_what_is_read() -> None:
    said = re.split(r"text ?: ", re.sub(r"\([^()]*\)", "", header("acquire")["ARGV"]))[1]
    read = re.findall(r"local ([\w, ]+) =\s+string\.match\(ARGV\[1\],", code(expanded("acquire")))
    named = {"at": "now", "as": ""}  # `as` is interval and burst once more, as they are stored
    words = [named.get(word, word) for word in ", ".join(read).split(", ")]
    assert [word for word in words if word] == [word.strip() for word in said.split(",") if word.strip()]


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_used_are_keys_declared(name: str) -> None:
    said, used = header(name)["KEYS"], live(name)
    highest = max((int(n) for n in re.findall(r"KEYS\[(\d+)\]", used)), default=0)
    scoped = "the eleven keys of the scope" in said
    assert scoped == ("-- @include lib/scope" in (FOLDER / f"{name}.lua").read_text())
    alone = said.strip() in ("the lease", "the bucket", "the window", "the processes")
    assert highest == (11 if scoped else 1 if alone else 0)
    if name != "park":  # a smoother's limits are rates, whose start buckets a task that enters does not ask
        assert ("KEYS[11 + i]" in used) == ("then the start bucket of each limit" in said)
    assert ("ipairs(KEYS)" in used or "KEYS[i]" in used) == ("one bucket per limit" in said)


@pytest.mark.parametrize("name", SCRIPTS)
def test_replies_given_are_replies_declared(name: str) -> None:
    said, used = header(name)["REPLY"], live(name)
    given = set(re.findall(r"return \{'(\w+)'", used))
    if name == "park":  # it tells `enter` to wait anyway, and has no bounds
        given -= {"go", "full"}
    assert given == set(re.findall(r"\{'(\w+)'", said))
    assert ("UNDECLARED" in said) == ("return UNDECLARED" in used)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rule_10_every_key_is_a_declared_one(path: Path) -> None:
    """A key is a local made of KEYS, or a parameter that every caller fills with one; never put together."""
    text = code(path.read_text())
    scope = code((FOLDER / "lib" / "scope.lua").read_text())
    given = {
        name.strip()
        for names, values in re.findall(r"local ([A-Z_, ]+) = ((?:KEYS\[\d+\](?:, )?)+)", scope)
        for name, _ in zip(names.split(","), values.split(","), strict=True)
    }
    assert len(given) == 11
    for command, key in CALL.findall(text):
        if command in KEYLESS:
            continue
        key = key.strip()
        assert ".." not in key
        if key in given or re.fullmatch(r"KEYS\[[\di+ ]+\]", key):
            continue
        given_one = rf"function (?:bucket_|\w+[_.])\w+\((?:\w+, )*{key}[,)]"
        assert re.search(rf"in ipairs\(KEYS\)|local {key} = KEYS\[|{given_one}", text), f"{command} {key}"
    for first in re.findall(r"(?<!function )(?:bucket_(?:load|store)|limit\.by\.(?:load|take|give))\(([^,()]+)", text):
        named = rf"for \w+, {first} in ipairs\(KEYS\)|local (?:\w+, )*{first}(?:, \w+)* = [^\n]*KEYS\["
        made = named if first.isidentifier() else None
        assert re.search(made, text) if made else re.fullmatch(r"KEYS\[[\di+ ]+\]", first), first


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_commands_of_redis_6_2(path: Path) -> None:
    text = code(path.read_text())
    assert {command for command, _ in CALL.findall(text)} <= COMMANDS
    assert len(CALL.findall(text)) == text.count("redis.call(") + text.count("redis.pcall("), "a computed command"
    assert not re.search(r"'P?EXPIRE(AT)?'[^)]*'(NX|XX|GT|LT)'", text), "Redis 7 only"


def test_every_listed_command_is_used() -> None:
    used = {command for path in FILES for command, _ in CALL.findall(code(path.read_text()))}
    assert used == COMMANDS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rule_13_numbers_are_printed_whole(path: Path) -> None:
    """`tostring` and `..` keep 14 digits where microseconds since 1970 have 16."""
    text = code(path.read_text())
    assert "tostring(" not in text
    moments = r"now|tat|slot|at|eta|wait|horizon|lease|next_look"
    assert not re.search(rf"\.\.\s*(?:\w+\.)?(?:{moments})\b(?!\()", text)
    assert not re.search(rf"\b(?:{moments})\s*\.\.", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_rule_7_the_clock_is_read_once(name: str) -> None:
    used, said = live(name), header(name)["ARGV"]
    assert used.count("'TIME'") <= 1
    calls = re.findall(r"(?<!function )\bclock\(", used)
    takes_time = "ask Redis" in said or said.strip().startswith("as submit")
    assert len(calls) == takes_time


@pytest.mark.parametrize("name", SCRIPTS)
def test_includes_are_expanded(name: str) -> None:
    assert "@include" not in expanded(name)
