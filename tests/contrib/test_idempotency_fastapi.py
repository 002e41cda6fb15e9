"""What is FastAPI's about the header Idempotency-Key: the response that it makes, and forms."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import signature
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response, UploadFile
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from dblock.aio import AsyncLocks
from dblock.contrib.http import BODY_MAX
from dblock.contrib.starlette import idempotent
from tests.aio.support import async_url
from tests.conftest import Database
from tests.contrib import fastapi_routes
from tests.contrib.fastapi_routes import ORDER, PLACES, ROUTES, Endpoint, Order, Placed, Session
from tests.processes.workers import Process, Say, Wait
from tests.support import SECONDS, Facts

KEY = {"Idempotency-Key": '"8e03978e"'}
Decorate = Callable[[Endpoint], Endpoint]
Told = tuple[int, bytes, list[tuple[str, str]]]


@asynccontextmanager
async def served(
    url: str, build: Callable[[Decorate], FastAPI], **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    users = create_async_engine(async_url(url))
    async with AsyncLocks(async_url(url)) as locks:
        app = build(idempotent(locks, caller=lambda request: None, **options))

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            async with AsyncSession(users) as session:
                await app({**scope, "state": {"session": session}}, receive, send)

        transport = httpx.ASGITransport(serve)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                yield client
        finally:
            await users.dispose()


def serving(
    db: Database,
    build: Callable[[Decorate], FastAPI],
    use: Callable[[httpx.AsyncClient], Awaitable[None]],
    **options: Any,
) -> None:
    async def main() -> None:
        async with served(db.url, build, **options) as client:
            await use(client)

    asyncio.run(main())


def test_each_kind_of_route(db: Database) -> None:
    """It answers as if it were not decorated; and again, with the word that it is a replay."""
    asked = {f"{name}{kind.path.format(number=7)}": kind.request for name, kind in ROUTES.items()}
    asked |= {f"{place}/somewhere": {} for place in PLACES}

    async def use(client: httpx.AsyncClient) -> None:
        for name, request in asked.items():
            headers = {**request.get("headers", {}), **KEY}

            async def post(way: str) -> Told:
                try:
                    sent = await client.post(f"/{way}/{name}", **{**request, "headers": headers})  # noqa: B023
                except ValueError as error:
                    return 500, str(error).encode(), []
                return sent.status_code, sent.content, sorted(sent.headers.multi_items())

            plain = await post("plain")
            if plain[0] == 500:  # older versions write no nan
                assert name == "no_number"
                assert [await post(way) for way in ("once", "evaluated")] == [plain, plain]
                continue
            for way in ("once", "evaluated"):
                assert await post(way) == plain, name
                status, body, sent = plain
                kept = [one for one in sent if one[0] != "set-cookie"]
                again = (status, body, sorted([*kept, ("idempotent-replayed", "true")]))
                assert [await post(way) for _ in range(2)] == [again, again], name

    fastapi_routes.told.clear()
    serving(db, fastapi_routes.application, use)
    ran = sorted(fastapi_routes.told)
    assert ran == [f"/{way}/in_the_background" for way in ("evaluated", "once", "plain")]
    engine = create_engine(db.url)
    with engine.connect() as connection:  # nothing is on record that was not sent
        for (result,) in connection.exec_driver_sql("SELECT result FROM dblock_once"):
            assert result is not None
            assert "secret" not in str(result)
            assert "hunter2" not in str(result)
    engine.dispose()


def test_what_dependencies_set_is_set_anew(db: Database) -> None:
    """Each time, as what middleware adds; what the route has set itself is replayed."""

    async def ask(request: Request, response: Response) -> None:
        asked = request.headers["x-asked"]
        response.status_code = 202
        response.set_cookie("session", asked)
        response.headers["X-Asked"] = asked
        response.headers["X-Shop"] = asked
        response.headers["Link"] = f"<{asked}>"

    def build(decorate: Decorate) -> FastAPI:
        app = FastAPI(dependencies=[Depends(ask)])

        @app.post("/made")
        @decorate
        async def made(request: Request, response: Response, session: Session) -> Order:
            response.set_cookie("token", "secret")
            response.headers.append("Link", "<of the route>")
            del response.headers["X-Shop"]
            return Order(product="pot")

        @app.post("/response")
        @decorate
        async def a_response(request: Request, session: Session) -> Response:
            return JSONResponse("pot")

        return app

    async def use(client: httpx.AsyncClient) -> None:
        for asked in ("one", "two"):
            reply = await client.post("/made", headers={"X-Asked": asked, **KEY})
            assert reply.status_code == 202
            assert reply.headers["x-asked"] == asked
            assert "x-shop" not in reply.headers
            assert reply.headers.get_list("link") == ["<one>", "<of the route>"]
            cookies = [cookie.partition(";")[0] for cookie in reply.headers.get_list("set-cookie")]
            assert cookies == [f"session={asked}", *(["token=secret"] if asked == "one" else [])]
            # FastAPI does not add them to a response that the route has made.
            reply = await client.post("/response", headers={"X-Asked": asked, **KEY})
            assert "x-asked" not in reply.headers
            assert "set-cookie" not in reply.headers
            assert ("idempotent-replayed" in reply.headers) == (asked == "two")

    serving(db, build, use)


def failing(decorate: Decorate) -> FastAPI:
    app = FastAPI()

    async def count(session: AsyncSession) -> None:
        await session.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))

    @app.post("/large")
    @decorate
    async def large(request: Request, session: Session) -> str:
        await count(session)
        return "x" * BODY_MAX

    @app.post("/object", response_model=None)
    @decorate
    async def an_object(request: Request, session: Session) -> object:
        await count(session)
        return object.__new__(object)

    @app.post("/another", response_model=Placed)
    @decorate
    async def another(request: Request, session: Session) -> Any:
        await count(session)
        return {"secret": "but no product"}

    @app.post("/stream")
    @decorate
    async def a_stream(request: Request, session: Session) -> Response:
        await count(session)
        return StreamingResponse(iter([b"one"]))

    @app.post("/file", response_class=FileResponse)
    @decorate
    async def a_file(request: Request, session: Session) -> str:
        await count(session)
        return __file__

    @app.post("/refused")
    @decorate
    async def refused(request: Request, session: Session) -> None:
        await count(session)
        raise HTTPException(404)

    @app.post("/busy")
    @decorate
    async def busy(request: Request, response: Response, session: Session) -> str:
        await count(session)
        response.status_code = 503
        response.headers["Retry-After"] = "7"
        return "later"

    @app.post("/undone")
    @decorate
    async def undone(request: Request, response: Response, session: Session) -> str:
        await count(session)
        await session.rollback()
        response.status_code = 409
        return "undone"

    @app.post("/consumed")
    async def consumed(request: Request, session: Session) -> Any:
        async for _ in request.stream():
            pass
        return await a_stream(request, session)

    @app.post("/inner")
    async def inner(request: Request, session: Session) -> Any:
        return await refused_by_hand(request, session)

    @decorate
    async def refused_by_hand(request: Request, session: Session) -> Any:
        await count(session)
        return {"order": 7}

    @app.post("/depends", dependencies=[Depends(refused_by_hand)])
    async def depends(request: Request, session: Session) -> Any:
        await count(session)

    return app


#: What each of them is answered, or what its log says.
FAILURES = {
    "large": "an idempotent view answered with 65538 bytes, and at most 65536 are recorded",
    "object": "object is not iterable",
    "another": "FastAPI makes no response of what /another returned",
    "stream": "answered with StreamingResponse, whose body is sent later and cannot be recorded",
    "file": "answered with FileResponse, whose body is sent later and cannot be recorded",
    "refused": "404",
    "busy": "503",
    "undone": "409",
    "consumed": "was read as a stream before: give idempotent() a fingerprint=",
    "inner": "this one returned dict. FastAPI makes a Response only of what its route returns",
    "depends": "an idempotent function is a route of FastAPI's, and this one is a dependency",
}


def test_what_fails_is_not_recorded(db: Database) -> None:
    """It fails before the commit: nothing has happened, and the key is as good as new."""
    engine = create_engine(db.url)
    facts = Facts(engine)

    async def use(client: httpx.AsyncClient) -> None:
        for route, said in [*FAILURES.items()] * 2:
            if not said.isdigit():
                with pytest.raises(Exception, match=re.escape(said)):
                    await client.post(f"/{route}", json=ORDER, headers=KEY)
                continue
            reply = await client.post(f"/{route}", json=ORDER, headers=KEY)
            assert said == str(reply.status_code), route
            assert "idempotent-replayed" not in reply.headers
            assert (reply.headers.get("retry-after") == "7") == (route == "busy")

    serving(db, failing, use)
    assert facts.n == 0
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT * FROM dblock_once").all() == []
    engine.dispose()


def ordering(decorate: Decorate) -> FastAPI:
    app = FastAPI()

    @app.post("/orders", status_code=201)
    @decorate
    async def orders(
        request: Request, response: Response, order: Order, session: Session
    ) -> dict[str, Any]:
        await session.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))
        n = (await session.execute(text("SELECT n FROM facts WHERE id = 0"))).scalar_one()
        response.headers["Location"] = f"/orders/{n}"
        return {"order": n, "product": order.product}

    return app


FIRST = (201, {"order": 1, "product": "pot"}, "/orders/1")


async def order(client: httpx.AsyncClient, product: str = "pot") -> httpx.Response:
    return await client.post("/orders", json={"product": product}, headers=KEY)


def seen(reply: httpx.Response) -> tuple[int, Any, str | None]:
    return reply.status_code, reply.json(), reply.headers.get("location")


def order_and_stop(say: Say, wait: Wait, url: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        say(seen(await order(client)))

    serving(Database("", url, None), ordering, use)


def test_another_process_replays(db: Database) -> None:
    engine = create_engine(db.url)
    facts = Facts(engine)
    with Process(order_and_stop, db.url) as first:
        assert first.message() == FIRST

    async def use(client: httpx.AsyncClient) -> None:
        reply = await order(client)
        assert seen(reply) == FIRST
        assert reply.headers["idempotent-replayed"] == "true"
        assert (await order(client, "pan")).status_code == 422

    serving(db, ordering, use)
    assert facts.n == 1
    engine.dispose()


def test_several_at_once(db: Database) -> None:
    engine = create_engine(db.url)
    facts = Facts(engine)

    async def use(client: httpx.AsyncClient) -> None:
        replies = await asyncio.gather(*(order(client) for _ in range(4)))
        assert [seen(reply) for reply in replies] == [FIRST] * 4
        replays = [reply.headers.get("idempotent-replayed") for reply in replies]
        assert sorted(replays, key=str) == [None, "true", "true", "true"]

    serving(db, ordering, use, wait=SECONDS / 2)
    assert facts.n == 1
    engine.dispose()


async def peeked(file: UploadFile) -> bytes:
    return await file.read(1)


def test_forms_are_compared_by_their_fields(db: Database) -> None:
    """A browser sends a form in other bytes each time: its fields and files have to be the same."""

    def build(decorate: Decorate) -> FastAPI:
        app = FastAPI()

        @app.post("/form")
        @decorate
        async def form(
            request: Request,
            session: Session,
            peek: Annotated[bytes, Depends(peeked)],
            product: Annotated[list[str], Form()],
            file: UploadFile,
        ) -> str:
            return f"{product} {peek!r} {len(await file.read())}"

        return app

    async def use(client: httpx.AsyncClient) -> None:
        async def post(*products: str, file: Any = ("a.txt", b"one" * 2**20)) -> httpx.Response:
            data = {"product": list(products)}
            return await client.post("/form", data=data, files={"file": file}, headers=KEY)

        first, again = await post("pot", "pan"), await post("pot", "pan")
        assert first.request.headers["content-type"] != again.request.headers["content-type"]
        assert first.json() == again.json() == f"['pot', 'pan'] b'o' {3 * 2**20}"
        assert again.headers["idempotent-replayed"] == "true"
        for products, file in (
            (["pot"], ("a.txt", b"one" * 2**20)),
            (["pan", "pot"], ("a.txt", b"one" * 2**20)),
            (["pot", "pan"], ("a.txt", b"one" * 2**20 + b".")),
            (["pot", "pan"], ("b.txt", b"one" * 2**20)),
        ):
            assert (await post(*products, file=file)).status_code == 422

    serving(db, build, use)


def test_without_a_key_or_with_another_method(db: Database) -> None:
    def build(decorate: Decorate) -> FastAPI:
        app = FastAPI()

        @app.api_route("/orders", methods=["PUT", "POST"], response_model=Order)
        @decorate
        async def orders(request: Request, response: Response, session: Session) -> Any:
            response.status_code = 202
            return Placed(product="pot")

        return app

    async def use(client: httpx.AsyncClient) -> None:
        for method in ("PUT", "POST") * 2:
            reply = await client.request(method, "/orders")
            assert (reply.status_code, reply.json()) == (202, {"product": "pot"})
            assert "idempotent-replayed" not in reply.headers

    serving(db, build, use, required=False)


def nowhere(request: Request) -> AsyncLocks:
    raise NotImplementedError


def test_routes_that_cannot_be_decorated() -> None:
    decorate: Any = idempotent(nowhere, caller=lambda request: None)

    async def lines(request: Request, session: Session) -> AsyncIterator[str]:
        yield "line"

    def in_a_thread(request: Request, session: Session) -> str:
        return "pot"

    for function in (lines, in_a_thread):
        with pytest.raises(TypeError, match="takes an `async def`"):
            decorate(function)


def test_annotations_that_mean_nothing_at_run_time() -> None:
    """FastAPI needs those no more than dblock does; the others it finds."""

    async def place(request: Request, order: Order, session: Session) -> None: ...

    place.__annotations__["return"] = "ImportedForTypeCheckers | None"
    place.__annotations__["session"] = "1 +"
    decorated = idempotent(nowhere, caller=lambda request: None)(place)
    found = {one.name: one.annotation for one in signature(decorated).parameters.values()}
    assert list(found) == ["request", "order", "session", "dblock_response"]
    assert (found["request"], found["order"], found["session"]) == (Request, Order, "1 +")
    assert signature(decorated).return_annotation == "ImportedForTypeCheckers | None"
    app = FastAPI()
    place.__annotations__["session"] = "Session"
    app.post("/orders", response_model=Order)(
        idempotent(nowhere, caller=lambda request: None)(place)
    )
    assert "dblock_response" not in str(app.openapi())


def test_without_fastapi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starlette is enough."""

    async def place(request: Request, session: AsyncSession) -> None: ...

    monkeypatch.setitem(sys.modules, "fastapi", None)
    decorated = idempotent(nowhere, caller=lambda request: None)(place)
    assert list(signature(decorated).parameters) == ["request", "session"]
