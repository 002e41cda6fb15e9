"""What the SQL functions refuse, before they read or write anything."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue, NullValueNotAllowed

from dblock.arguments import NAME_MAX, TTL_MAX, TTL_MIN
from tests.contract.test_names import AWKWARD
from tests.sql_functions.caller import Caller, token

TOKEN = token()
GOOD: dict[str, Any] = {"name": "report", "token": TOKEN, "owner": "ada", "ttl": 30.0, "fence": 1}
CALLS = {
    "acquire": ("name", "token", "owner", "ttl"),
    "renew": ("name", "token", "ttl"),
    "release": ("name", "token"),
    "show": ("name",),
    "gate": ("name", "fence"),
}
BAD: dict[str, list[tuple[Any, str]]] = {
    "name": [("", "0"), ("x" * (NAME_MAX + 1), str(NAME_MAX + 1))],
    "token": [
        (wrong, "32 hexadecimal digits")
        for wrong in (
            "",
            TOKEN[1:],
            TOKEN + "0",
            TOKEN.replace(TOKEN[0], "A", 1).upper(),
            f"{TOKEN[:-1]}g",
            f"{TOKEN}\n",
            f" {TOKEN[1:]}",
            f"shared{TOKEN[6:]}",
        )
    ],
    "owner": [("x" * (NAME_MAX + 1), str(NAME_MAX + 1))],
    "ttl": [
        (wrong, "366 days")
        for wrong in (0.0, -1.0, TTL_MIN / 2, TTL_MAX + 1, math.nan, math.inf, -math.inf)
    ],
    "fence": [(0, "at least 1"), (-1, "at least 1")],
}


@pytest.mark.parametrize("function", CALLS)
def test_what_is_wrong_is_refused_by_what_it_is(caller: Caller, function: str) -> None:
    before = rows(caller)
    for wrong in CALLS[function]:
        with pytest.raises(NullValueNotAllowed, match="cannot be NULL"):
            called(caller, function, wrong, None)
        for value, said in BAD[wrong]:
            with pytest.raises(InvalidParameterValue, match=said) as caught:
                called(caller, function, wrong, value)
            if wrong == "token" and value:
                assert value not in str(caught.value)
    assert rows(caller) == before


def called(caller: Caller, function: str, wrong: str, value: Any) -> None:
    values = [value if name == wrong else GOOD[name] for name in CALLS[function]]
    casts = {"ttl": "float8", "fence": "bigint"}
    marks = ", ".join(f"%s::{casts.get(name, 'text')}" for name in CALLS[function])
    caller.run(f"SELECT * FROM dblock_{function}({marks})", *values)


def rows(caller: Caller) -> list[Any]:
    tables = ("lock", "epoch", "witness", "fence")
    return [caller.run(f"SELECT t.*, xmin::text FROM dblock_{table} AS t") for table in tables]


def test_the_bounds_themselves_pass(caller: Caller) -> None:
    for name in ("x", "\U0001f512" * NAME_MAX, *AWKWARD):
        mine = token()
        assert caller.acquire(name, mine).fence == 1
        assert caller.show(name).holder == "a caller"
        assert caller.renew(name, mine)[0] == 1
        assert caller.release(name, mine)
    assert caller.acquire("short", token(), TTL_MIN).fence == 1
    assert caller.acquire("long", token(), TTL_MAX).fence == 1
    assert caller.acquire("owner", token(), owner="x" * NAME_MAX).fence == 1
    assert caller.acquire("nameless", token(), owner="").fence == 1


def test_numbers_may_be_of_any_type(caller: Caller) -> None:
    for number, ttl in enumerate(("30", "30.5", "'30'", "30::bigint", "1e1")):
        sql = f"SELECT fence FROM dblock_acquire('n{number}', '{token()}', 'ada', {ttl})"
        assert caller.run(sql) == [(1,)]


def test_arguments_may_be_named(caller: Caller) -> None:
    sql = "SELECT fence FROM dblock_acquire(ttl => 30, owner => 'a', token => %s, name => 'n')"
    assert caller.run(sql, TOKEN) == [(1,)]


def test_a_server_that_takes_no_writes_says_so(caller: Caller) -> None:
    caller.acquire("report", TOKEN)
    caller.run("BEGIN READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        caller.renew("report", TOKEN)
    caller.run("ROLLBACK")
