"""One idempotent endpoint in each framework, and what it does with an order."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import httpx
from django.db import IntegrityError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import path as django_path
from flask import Flask, Response, request
from flask import Request as FlaskRequest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse
from starlette.responses import StreamingResponse
from starlette.routing import Route

from dblock.aio import AsyncLocks
from dblock.contrib.django import idempotent as django_idempotent
from dblock.contrib.flask import DBLock
from dblock.contrib.http import BODY_MAX
from dblock.contrib.starlette import idempotent as starlette_idempotent
from tests.aio.support import async_url
from tests.conftest import Database
from tests.contrib.django.conftest import Site, of
from tests.support import SECONDS

COUNT = "UPDATE facts SET n = n + 1 WHERE id = 0"
#: The database refuses it: there is such a row.
FAILING = "INSERT INTO facts (id, n) VALUES (0, 1)"
BINARY = bytes(range(256))


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    #: The words beside the status; ASGI has none.
    reason: str = ""

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


class Made(NamedTuple):
    """What an endpoint answers."""

    status: int
    body: bytes
    headers: dict[str, str]


def made(order: bytes) -> Made:
    """What is answered to an order, after its effect."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Order": "7"}
    match order.decode().rpartition(" ")[2]:  # the status is behind what is done before
        case "raise":
            raise KeyError("of the endpoint")
        case "large":
            return Made(200, b"x" * (BODY_MAX + 1), headers)
        case "binary":
            return Made(200, BINARY, {"Content-Type": "image/png"})
        case status if status.isdigit():
            return Made(int(status), f"told {status}".encode(), headers)
    answer = "1 Krückstock ordered".encode()
    return Made(201, answer, headers | {"Location": "/orders/7", "Set-Cookie": "secret=1"})


class Shop(ABC):
    """An application whose endpoint ``/orders`` counts."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.db = db
        self.options = options
        #: For an order that says "wait": it has begun, and may end.
        self.begun, self.go_on = threading.Event(), threading.Event()

    @abstractmethod
    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply: ...

    @contextmanager
    def serving(self) -> Iterator[None]:
        yield

    def post(
        self,
        key: str | None = None,
        order: str = "stick",
        *,
        path: str = "/orders",
        method: str = "POST",
        caller: str = "Ann",
    ) -> Reply:
        headers = {"X-Caller": caller, "Content-Type": "text/plain"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.send(method, path, headers, order.encode())

    def wait(self) -> None:
        self.begun.set()
        assert self.go_on.wait(SECONDS)


class DjangoShop(Shop):
    @contextmanager
    def serving(self) -> Iterator[None]:
        site = Site()
        site.use(**of(self.db))

        @django_idempotent(caller=lambda asked: asked.headers["X-Caller"], **self.options)
        def orders(asked: HttpRequest) -> HttpResponse | StreamingHttpResponse:
            with connection.cursor() as cursor:
                cursor.execute(COUNT)
            if asked.body == b"wait":
                self.wait()
            if asked.body == b"stream":
                return StreamingHttpResponse(iter([b"one"]))
            if asked.body.startswith(b"undo"):
                transaction.set_rollback(True)
            if asked.body.startswith(b"commit"):
                transaction.commit()
            if asked.body.startswith(b"fail"):
                with suppress(IntegrityError), connection.cursor() as cursor:
                    cursor.execute(FAILING)
            status, body, headers = made(asked.body)
            reason = "Out of Stock" if asked.body.startswith(b"reason") else None
            return HttpResponse(body, status=status, headers=headers, reason=reason)

        with override_settings(ROOT_URLCONF=(django_path("orders", orders),), MIDDLEWARE=[]):
            yield
        site.close()

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        client = Client(raise_request_exception=False)
        kind = headers.pop("Content-Type")
        try:
            found = client.generic(method, path, body, content_type=kind, headers=headers)
            told = {name.lower(): value for name, value in found.headers.items()}
            return Reply(found.status_code, told, found.content, found.reason_phrase)
        finally:
            connections.close_all()


class FlaskShop(Shop):
    @contextmanager
    def serving(self) -> Iterator[None]:
        engine = create_engine(self.db.url)
        session = scoped_session(sessionmaker(engine))
        app, locks = Flask("shop"), DBLock()
        app.config["DBLOCK_URL"] = engine
        locks.init_app(app)

        def caller(asked: FlaskRequest) -> str:
            return asked.headers["X-Caller"]

        @app.route("/orders", methods=["GET", "POST"])
        @locks.idempotent(session, caller=caller, **self.options)
        def orders() -> Any:
            session.execute(text(COUNT))
            order = request.get_data()
            if order == b"wait":
                self.wait()
            if order == b"stream":
                return iter([b"one"])
            if order.startswith(b"undo"):
                session.rollback()
            if order.startswith(b"commit"):
                session.commit()
            if order.startswith(b"fail"):
                with suppress(DBAPIError):
                    session.execute(text(FAILING))
            status, body, headers = made(order)
            if order.startswith(b"reason"):
                return Response(body, f"{status} Out of Stock", headers)
            return Response(body, status, headers)

        @app.teardown_request
        def end(error: BaseException | None) -> None:
            session.remove()

        self._app = app
        yield
        with app.app_context():
            locks.locks.close()
        engine.dispose()

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        found = self._app.test_client().open(path, method=method, headers=headers, data=body)
        told = {name.lower(): value for name, value in found.headers.items()}
        return Reply(found.status_code, told, found.data, found.status.partition(" ")[2])


class StarletteShop(Shop):
    @contextmanager
    def serving(self) -> Iterator[None]:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        engine = create_async_engine(async_url(self.db.url))

        async def locks_in_loop() -> AsyncLocks:
            return AsyncLocks(engine)

        async def close() -> None:
            await locks.close()
            await engine.dispose()
            await self._loop.shutdown_default_executor()

        locks = self._run(locks_in_loop())
        on: Callable[..., Any] = starlette_idempotent(
            locks, caller=lambda asked: asked.headers["X-Caller"], **self.options
        )

        @on
        async def place(asked: StarletteRequest, session: AsyncSession) -> StarletteResponse:
            await session.execute(text(COUNT))
            order = await asked.body()
            if order == b"wait":
                await asyncio.to_thread(self.wait)
            if order == b"stream":
                return StreamingResponse(iter([b"one"]))
            if order.startswith(b"undo"):
                await session.rollback()
            if order.startswith(b"commit"):
                await session.commit()
            if order.startswith(b"fail"):
                with suppress(DBAPIError):
                    await session.execute(text(FAILING))
            status, body, headers = made(order)
            return StarletteResponse(body, status, headers)

        async def orders(asked: StarletteRequest) -> StarletteResponse:
            async with AsyncSession(engine) as session:
                answer: StarletteResponse = await place(asked, session)
                return answer

        self._app = Starlette(routes=[Route("/orders", orders, methods=["GET", "POST"])])
        try:
            yield
        finally:
            self._run(close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                return await client.request(method, path, headers=headers, content=body)

        found = self._run(ask())
        return Reply(found.status_code, dict(found.headers), found.content)


SHOPS = {"django": DjangoShop, "flask": FlaskShop, "starlette": StarletteShop}
