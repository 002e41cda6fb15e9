"""The header Idempotency-Key, in each framework and on each database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from typing import Any

import pytest
from sqlalchemy import create_engine
from starlette.requests import Request

from dblock.aio import AsyncLocks
from dblock.contrib import http
from dblock.contrib.django import idempotent
from dblock.contrib.flask import DBLock
from dblock.contrib.http import KEY_MAX, Answer, Rejected, read_key
from dblock.contrib.starlette import idempotent as starlette_idempotent
from tests.conftest import KINDS, Database, NewDatabase
from tests.contrib.shops import BINARY, SHOPS, FlaskShop, Reply, Shop
from tests.processes.workers import Process, Say, Wait
from tests.support import SECONDS, Facts, Threads

KEY = '"8e03978e-40d5-43dd-bc93-6894a57f9324"'
EACH = [(shop, kind) for shop in SHOPS for kind in KINDS]
#: What is above the databases: each framework on another one.
IN_TURN = list(zip(cycle(SHOPS), KINDS, strict=False))
Open = Callable[..., Shop]


@pytest.fixture
def open_shop(request: pytest.FixtureRequest, new_database: NewDatabase) -> Iterator[Open]:
    name, kind = request.param
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url)
    facts = Facts(engine)
    with ExitStack() as stack:

        def opened(**options: Any) -> Shop:
            kind: Any = SHOPS[name]
            shop: Shop = kind(db, **options)
            shop.facts = facts  # type: ignore[attr-defined]
            stack.enter_context(shop.serving())
            return shop

        yield opened
    engine.dispose()


each = pytest.mark.parametrize("open_shop", EACH, indirect=True, ids="-".join)
in_turn = pytest.mark.parametrize("open_shop", IN_TURN, indirect=True, ids="-".join)


def sold(shop: Shop) -> int:
    count: int = shop.facts.n  # type: ignore[attr-defined]
    return count


def problem(reply: Reply, status: int) -> str:
    assert reply.status == status
    assert reply.headers["content-type"] == "application/problem+json"
    told = json.loads(reply.body)
    assert told["status"] == status
    assert told["type"] == "about:blank"
    assert told["title"]
    detail: str = told["detail"]
    return detail


@each
def test_it_runs_once(open_shop: Open) -> None:
    shop = open_shop()
    first = shop.post(KEY)
    assert (first.status, first.replayed) == (201, False)
    assert first.headers["set-cookie"] == "secret=1"
    again = shop.post(KEY)
    assert (again.status, again.body, again.replayed) == (201, first.body, True)
    for name in ("content-type", "location", "x-order"):
        assert again.headers[name] == first.headers[name]
    assert "set-cookie" not in again.headers
    assert sold(shop) == 1
    assert shop.post('"another"').replayed is False
    assert sold(shop) == 2


@each
def test_another_request_with_the_key(open_shop: Open) -> None:
    shop = open_shop()
    assert shop.post(KEY, "one").status == 201
    assert "used for another request" in problem(shop.post(KEY, "two"), 422)
    assert "used for another request" in problem(shop.post(KEY, "one", path="/orders?x=1"), 422)
    assert shop.post(KEY, "one").replayed
    assert sold(shop) == 1


@each
def test_two_at_once(open_shop: Open, threads: Threads) -> None:
    """The second one is told, while the first is not committed. On SQLite a reader waits for the
    writer of the file too."""
    shop = open_shop()
    first = threads.start(shop.post, KEY, "wait")
    assert shop.begun.wait(SECONDS)
    try:
        told = shop.post(KEY, "wait")
    finally:
        shop.go_on.set()
    assert "in progress" in problem(told, 409)
    assert told.headers["retry-after"] == "1"
    assert first.result(SECONDS).status == 201
    assert shop.post(KEY, "wait").replayed
    assert sold(shop) == 1


@each
def test_one_waits_for_the_other(open_shop: Open, threads: Threads) -> None:
    shop = open_shop(wait=SECONDS / 2)
    both = [threads.start(shop.post, KEY, "wait") for _ in range(2)]
    assert shop.begun.wait(SECONDS)
    shop.go_on.set()
    found = [one.result(SECONDS) for one in both]
    assert [one.status for one in found] == [201, 201]
    assert sorted(one.replayed for one in found) == [False, True]
    assert sold(shop) == 1


@each
def test_what_fails_is_not_recorded(open_shop: Open) -> None:
    """It is rolled back, and the key is as good as new."""
    shop = open_shop()
    for order in ("raise", "500", "503", "401", "429", "large", "stream"):
        status = int(order) if order.isdigit() else 500
        assert [shop.post(f'"{order}"', order).status for _ in range(2)] == [status, status]
        assert sold(shop) == 0
    told = shop.post('"503"', "503")
    assert (told.body, told.headers["x-order"]) == (b"told 503", "7")


@each
def test_a_view_that_rolls_back(open_shop: Open) -> None:
    """Nothing has happened, so nothing is recorded. A success would not be true."""
    shop = open_shop()
    for _ in range(2):
        told = shop.post('"undo"', "undo 409")
        assert (told.status, told.body, told.replayed) == (409, b"told 409", False)
        assert shop.post('"undone"', "undo 201").status == 500
    assert sold(shop) == 0
    for key in ('"undo"', '"undone"'):  # as good as new
        assert shop.post(key, "stick").status == 201


@each
def test_a_view_that_commits(open_shop: Open) -> None:
    """It is refused before it does, so its key is not left without an answer."""
    shop = open_shop()
    assert [shop.post(KEY, "commit 201").status for _ in range(2)] == [500, 500]
    assert sold(shop) == 0
    assert shop.post(KEY, "stick").status == 201


@each
def test_a_view_whose_transaction_has_failed(open_shop: Open) -> None:
    """PostgreSQL ends the whole transaction, the others undo the statement alone."""
    shop = open_shop()
    whole = shop.db.kind == "postgresql"
    told = [shop.post(KEY, "fail 409") for _ in range(2)]
    assert [one.status for one in told] == [409, 409]
    assert [one.replayed for one in told] == [False, not whole]
    assert sold(shop) == (0 if whole else 1)
    assert shop.post('"another"', "fail 201").status == (500 if whole else 201)
    assert sold(shop) == (0 if whole else 2)


@each
def test_the_reason_phrase(open_shop: Open) -> None:
    shop = open_shop()
    for order in ("reason 409", "409", "404"):
        first, again = (shop.post(f'"{order}"', order) for _ in range(2))
        assert again.replayed
        assert again.reason == first.reason


def post_and_stop(say: Say, wait: Wait, url: str, order: str) -> None:
    """Send an order, and stop for ever in its view, or when it is answered."""

    class Stopping(FlaskShop):
        def wait(self) -> None:
            say("in the view")
            wait()

    shop = Stopping(Database("", url, None))
    with shop.serving():
        say(f"answered {shop.post(KEY, order).status}")
        wait()


@pytest.mark.parametrize("open_shop", [("flask", kind) for kind in KINDS], indirect=True, ids=KINDS)
@pytest.mark.parametrize("order", ["wait", "stick"])
def test_a_killed_server(open_shop: Open, order: str) -> None:
    """Before the commit nothing has happened. After it, the next request gets the answer."""
    shop = open_shop(wait=SECONDS / 2)
    with Process(post_and_stop, shop.db.url, order) as victim:
        answered = victim.message() == "answered 201"
        victim.kill()
    assert answered == (order == "stick")
    assert sold(shop) == int(answered)
    shop.go_on.set()
    reply = shop.post(KEY, order)
    assert (reply.status, reply.replayed) == (201, answered)
    assert sold(shop) == 1


@in_turn
def test_what_is_recorded(open_shop: Open) -> None:
    shop = open_shop()
    for count, order in enumerate(("200", "303", "404", "422", "binary"), 1):
        first, again = (shop.post(f'"{order}"', order) for _ in range(2))
        assert (first.status, first.body) == (again.status, again.body)
        assert (first.replayed, again.replayed) == (False, True)
        assert sold(shop) == count
    assert shop.post('"binary"', "binary").body == BINARY


@in_turn
def test_the_key_is_missing(open_shop: Open) -> None:
    shop = open_shop()
    assert "needs the header Idempotency-Key" in problem(shop.post(), 400)
    assert sold(shop) == 0


@in_turn
def test_the_key_is_wrong(open_shop: Open) -> None:
    shop = open_shop()
    for key, said in (
        ('"one", "two"', "one string in quotes"),
        ('"one', "one string in quotes"),
        ('""', "is empty"),
        (f'"{"x" * 256}"', "at most 255 characters, this one has 256"),
    ):
        assert said in problem(shop.post(key), 400)
    assert sold(shop) == 0


@in_turn
def test_it_need_not_have_a_key(open_shop: Open) -> None:
    shop = open_shop(required=False)
    assert [shop.post().replayed for _ in range(2)] == [False, False]
    assert sold(shop) == 2
    assert shop.post(order="503").status == 503
    assert sold(shop) == 2
    assert [shop.post(KEY).replayed for _ in range(2)] == [False, True]
    assert sold(shop) == 3


@in_turn
def test_other_methods(open_shop: Open) -> None:
    """They run as usual: nothing is asked of them."""
    shop = open_shop()
    assert [shop.post(KEY, method="GET").replayed for _ in range(2)] == [False, False]
    assert shop.post(method="GET").status == 201


@in_turn
def test_callers_share_no_keys(open_shop: Open) -> None:
    shop = open_shop()
    for caller in ("Ann", "Bob"):
        assert not shop.post(KEY, caller=caller).replayed
        assert shop.post(KEY, caller=caller).replayed
    assert sold(shop) == 2


@in_turn
def test_a_fingerprint(open_shop: Open) -> None:
    """What has to be the same is what the application says."""
    shop = open_shop(fingerprint=lambda asked: asked.headers["X-Caller"])
    assert not shop.post(KEY, "one").replayed
    assert shop.post(KEY, "two").replayed


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ('"abc"', "abc"),
        (' "abc" ', "abc"),
        ("abc", "abc"),
        ("8e03978e-40d5-43dd", "8e03978e-40d5-43dd"),
        ('"a b"', "a b"),
        (r'"a\"b\\c"', r'a"b\c'),
        ('"abc";version=1', "abc"),
        (f'"{"x" * KEY_MAX}"', "x" * KEY_MAX),
    ],
)
def test_keys(header: str, key: str) -> None:
    assert read_key(header) == key


@pytest.mark.parametrize(
    "header",
    ["", " ", '""', '"a', 'a"', "a b", "a,b", '"a" "b"', r'"a\b"', '"é"', '"a\tb"', "x" * 256, "é"],
)
def test_wrong_keys(header: str) -> None:
    with pytest.raises(Rejected) as refused:
        read_key(header)
    answer = refused.value.answer
    assert answer.status == 400
    assert answer.headers == (("Content-Type", "application/problem+json"),)


@pytest.mark.parametrize("body", [b"", b"text", "é\0\u2028".encode(), b"\xff\xfe", BINARY])
def test_answers(body: bytes) -> None:
    """They are the same after they were recorded, but for what is of one connection."""
    headers = (("Content-Type", "a/b"), ("Link", "<1>"), ("link", "<2>"))
    more = (("Date", "now"), ("Content-Length", "4"), ("Set-Cookie", "a=b"))
    recorded = json.loads(json.dumps(Answer(201, headers + more, body).recorded()))
    assert Answer.replayed(recorded) == Answer(201, (*headers, (http.REPLAYED, "true")), body)


def test_the_largest() -> None:
    recorded = json.dumps(Answer(200, (), b"\0" * http.BODY_MAX).recorded())
    assert len(recorded) < 2**20
    with pytest.raises(ValueError, match=r"65537 bytes, and at most 65536 .* a link"):
        Answer(200, (), b"\0" * (http.BODY_MAX + 1)).recorded()


def decorators() -> list[Callable[..., Any]]:
    session: Any = None

    def of_starlette(**options: Any) -> Any:
        return starlette_idempotent(AsyncLocks("sqlite+aiosqlite:///unused.db"), **options)

    return [
        idempotent,
        lambda **options: DBLock().idempotent(session, **options),
        of_starlette,
    ]


@pytest.mark.parametrize("decorate", decorators())
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"caller": "Ann"}, "caller is a function"),
        ({"fingerprint": 7}, "fingerprint is a function"),
        ({"methods": "POST"}, "methods is a collection"),
        ({"required": "no"}, "required is True or False"),
        ({"keep": "long"}, "keep is a number of seconds"),
        ({"wait": "long"}, "a wait is a number of seconds"),
    ],
)
def test_wrong_options(decorate: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        decorate(**({"caller": lambda request: None} | options))


def test_views_that_cannot_be_decorated() -> None:
    async def later() -> None: ...

    def now() -> None: ...

    in_django, in_flask, in_starlette = (
        decorate(caller=lambda request: None) for decorate in decorators()
    )
    with pytest.raises(TypeError, match="Django has no transactions in those: write it as a plain"):
        in_django(later)
    with pytest.raises(TypeError, match="would run outside the transaction"):
        in_flask(later)
    with pytest.raises(TypeError, match="takes an `async def`"):
        in_starlette(now)


def test_starlettes_arguments() -> None:
    async def nothing(*given: object) -> None: ...

    place = decorators()[2](caller=lambda request: None)(nothing)

    asked = Request({"type": "http", "method": "POST"})
    for given in ((), (asked, asked), (asked,)):
        with pytest.raises(TypeError, match="with one Request and one AsyncSession; this call"):
            asyncio.run(place(*given))
