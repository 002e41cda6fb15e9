"""What is FastAPI's about the header Idempotency-Key: what a route returns, and forms."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

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

    @app.post("/form")
    async def form(request: Request, session: Session) -> Any:
        async for _ in request.stream():
            pass
        return await model(request, Order(product="pot"), session)

    return app


ROUTES = ("model", "model", "lines", "lines", "large", "object", "refused", "refused", "form")


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
    assert "a model of Pydantic or what JSON can express, not object" in said["object"]
    assert said["refused"] == (404, {"detail": "Not Found"})
    assert "give idempotent() a fingerprint=" in said["form"]
    assert facts.n == 1
    engine.dispose()
