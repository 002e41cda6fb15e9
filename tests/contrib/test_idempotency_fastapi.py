"""What is FastAPI's about the header Idempotency-Key: what a route returns, and forms."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from inspect import signature
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import declarative_base

from dblock.aio import AsyncLocks
from dblock.contrib.http import BODY_MAX
from dblock.contrib.starlette import idempotent
from tests.aio.support import async_url
from tests.conftest import NewDatabase
from tests.support import Facts

ORDER = {"product": "pot"}
KEY = {"Idempotency-Key": '"8e03978e"'}


class Order(BaseModel):
    product: str


class Placed(BaseModel):
    product: str
    secret: str = "of the shop"


class Shown(BaseModel):
    product: str


def session_of(request: Request) -> AsyncSession:
    session: AsyncSession = request.state.session
    return session


Session = Annotated[AsyncSession, Depends(session_of)]


def application(locks: AsyncLocks) -> FastAPI:
    app = FastAPI()
    once = idempotent(locks, caller=lambda request: None)

    async def count(session: AsyncSession) -> None:
        await session.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))

    @app.post("/model", status_code=201, response_model=Shown)
    @once
    async def model(request: Request, order: Order, session: Session) -> Placed:
        await count(session)
        return Placed(product=order.product)

    @app.post("/lines")
    @once
    async def lines(request: Request, session: Session) -> Any:
        return {1: ("pot", 2)}

    @app.post("/large")
    @once
    async def large(request: Request, session: Session) -> str:
        await count(session)
        return "x" * BODY_MAX

    @app.post("/object", response_model=None)
    @once
    async def an_object(request: Request, session: Session) -> object:
        await count(session)
        return object()

    @app.post("/refused")
    @once
    async def refused(request: Request, session: Session) -> None:
        await count(session)
        raise HTTPException(404)

    @app.post("/stream")
    async def stream(request: Request, session: Session) -> Any:
        async for _ in request.stream():
            pass
        return await model(request, Order(product="pot"), session)

    return app


ROUTES = ("model", "model", "lines", "lines", "large", "object", "refused", "refused", "stream")


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_what_a_route_returns(new_database: NewDatabase, kind: str) -> None:
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url)
    facts = Facts(engine)

    async def main() -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        users = create_async_engine(async_url(db.url))
        async with AsyncLocks(async_url(db.url)) as locks:
            app = application(locks)
            for route in ROUTES:
                async with AsyncSession(users) as session:

                    async def serve(scope: Any, receive: Any, send: Any) -> None:
                        await app({**scope, "state": {"session": session}}, receive, send)

                    transport = httpx.ASGITransport(serve)
                    async with httpx.AsyncClient(transport=transport, base_url="http://s") as http:
                        try:
                            reply = await http.post(f"/{route}", json=ORDER, headers=KEY)
                            found.append((route, (reply.status_code, reply.json())))
                        except (TypeError, ValueError) as error:
                            found.append((route, str(error)))
        await users.dispose()
        return found

    told = asyncio.run(main())
    # What FastAPI leaves out of the first response it leaves out of the next one.
    assert told[:2] == [("model", (201, {"product": "pot"}))] * 2
    assert told[2:4] == [("lines", (200, {"1": ["pot", 2]}))] * 2  # both as JSON has it
    said = dict(told)
    assert "bytes, and at most 65536 are recorded" in said["large"]
    assert "a Response, or what FastAPI can make one of, not object" in said["object"]
    assert said["refused"] == (404, {"detail": "Not Found"})
    assert "give idempotent() a fingerprint=" in said["stream"]
    assert facts.n == 1
    engine.dispose()


NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
NUMBER = UUID("8e03978e-40d5-43dd-bc93-6894a57f9324")


class Mapped(declarative_base()):  # type: ignore[misc]
    __tablename__ = "mapped"
    id = Column(Integer, primary_key=True)
    product = Column(String(20))


def usual(locks: AsyncLocks) -> FastAPI:
    """The kinds of routes that FastAPI's own pages have."""
    app = FastAPI()
    once = idempotent(locks, caller=lambda request: None)

    @app.post("/values", status_code=201)
    @once
    async def values(request: Request, session: Session) -> dict[str, Any]:
        return {"at": NOON, "number": NUMBER, "price": Decimal("1.50"), "set": {1}}

    @app.post("/models")
    @once
    async def models(request: Request, session: Session) -> list[Placed]:
        return [Placed(product="pot"), Placed(product="pan", secret="no")]

    @app.post("/mapped", response_model=Shown)
    @once
    async def mapped(request: Request, session: Session) -> Any:
        return Mapped(id=1, product="pot")

    @app.post("/nothing", status_code=204)
    @once
    async def nothing(request: Request, session: Session) -> None:
        return None

    @app.post("/beside")
    @once
    async def beside(request: Request, response: Response, session: Session) -> Order:
        response.status_code = 202
        response.headers["Location"] = "/orders/7"
        response.set_cookie("token", "secret")
        return Order(product="pot")

    @app.post("/busy")
    @once
    async def busy(request: Request, response: Response, session: Session) -> str:
        response.status_code = 503
        return "later"

    @app.post("/response")
    @once
    async def response(request: Request, session: Session) -> JSONResponse:
        return JSONResponse({"order": 7}, 201, {"Location": "/orders/7"})

    @app.post("/form")
    @once
    async def form(
        request: Request, session: Session, product: Annotated[str, Form()], file: UploadFile
    ) -> dict[str, str]:
        return {"product": product, "file": (await file.read()).decode()}

    return app


def test_usual_routes(new_database: NewDatabase) -> None:
    """A repeated request gets the same response, and is told that it is one."""
    db = new_database("sqlite", migrated=True)

    async def main() -> None:
        users = create_async_engine(async_url(db.url))
        async with AsyncLocks(async_url(db.url)) as locks:
            app = usual(locks)

            async def serve(scope: Any, receive: Any, send: Any) -> None:
                async with AsyncSession(users) as session:
                    await app({**scope, "state": {"session": session}}, receive, send)

            transport = httpx.ASGITransport(serve)
            async with httpx.AsyncClient(transport=transport, base_url="http://s") as http:
                for route in ("values", "models", "mapped", "nothing", "beside", "response"):
                    first, again = [await http.post(f"/{route}", headers=KEY) for _ in range(2)]
                    assert first.is_success, route
                    assert (again.status_code, again.content) == (first.status_code, first.content)
                    assert again.headers["idempotent-replayed"] == "true", route
                    assert "idempotent-replayed" not in first.headers
                    assert again.headers.get("location") == first.headers.get("location")
                    assert "set-cookie" not in again.headers
                assert (await http.post("/beside", headers=KEY)).status_code == 202
                for _ in range(2):
                    later = await http.post("/busy", headers=KEY)
                    assert (later.status_code, later.json()) == (503, "later")
                    assert "idempotent-replayed" not in later.headers
                orders = [("pot", b"one"), ("pot", b"one"), ("pan", b"one"), ("pot", b"two")]
                replies = [
                    await http.post(
                        "/form", data={"product": product}, files={"file": content}, headers=KEY
                    )
                    for product, content in orders
                ]
                assert [one.status_code for one in replies] == [200, 200, 422, 422]
                assert replies[1].json() == {"product": "pot", "file": "one"}
                assert replies[1].headers["idempotent-replayed"] == "true"
            for path in app.openapi()["paths"].values():
                assert "dblock_response" not in str(path)
        await users.dispose()

    asyncio.run(main())


def test_its_annotations_may_be_words() -> None:
    """As with ``from __future__ import annotations``; also of names that are imported for types."""

    async def own(request: Any, response: Any, session: Any) -> None: ...

    for word, names in (
        ("Response", ["request", "response", "session"]),
        ("fastapi.Response", ["request", "response", "session"]),
        ("Unknown", ["request", "response", "session", "dblock_response"]),
    ):
        own.__annotations__["response"] = word
        decorated = idempotent(lambda request: None, caller=lambda request: None)(own)  # type: ignore[arg-type, return-value]
        assert list(signature(decorated).parameters) == names
