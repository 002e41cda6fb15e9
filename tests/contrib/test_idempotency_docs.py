"""The recipes of docs/idempotency.md, each in an application of its framework."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from django.db import connection, models
from django.test import Client, override_settings
from django.urls import path
from flask_sqlalchemy import SQLAlchemy
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, create_engine
from sqlalchemy.orm import declarative_base

from tests.aio.support import async_url
from tests.conftest import KINDS, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.contrib.test_docs import page
from tests.test_docs import blocks

KEY = {"Idempotency-Key": '"8e03978e"', "X-Customer": "Ann"}
PAGE = page("idempotency.md")


class DjangoOrder(models.Model):
    product = models.CharField(max_length=20)  # type: ignore[var-annotated]

    class Meta:
        app_label = "ordering"


class NewOrder(BaseModel):
    product: str


def run(name: str, monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> dict[str, Any]:
    """Run a recipe where its imports find these modules."""
    for module, names in modules.items():
        made = ModuleType(module)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, module, made)
    (block,) = blocks(PAGE, f"python {name}")
    names = {"__name__": name}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def test_django(new_database: NewDatabase, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.use(**of(new_database("sqlite", migrated=True)))
    with connection.schema_editor() as editor:
        editor.create_model(DjangoOrder)
    (block,) = blocks(PAGE, "python django")
    names: dict[str, Any] = {"__name__": "shop", "Order": DjangoOrder}
    exec(compile(block, str(PAGE), "exec"), names)
    with override_settings(ROOT_URLCONF=(path("orders", names["place_order"]),), MIDDLEWARE=[]):
        client = Client()
        for status, product, key in ((201, "pot", KEY), (201, "pot", KEY), (422, "lid", KEY)):
            assert client.post("/orders", {"product": product}, headers=key).status_code == status
        assert client.post("/orders", {"product": "pot"}).status_code == 400
    assert DjangoOrder.objects.count() == 1


def test_flask(new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database("sqlite", migrated=True).url
    db = SQLAlchemy()

    class Order(db.Model):  # type: ignore[name-defined, misc]
        id = db.Column(db.Integer, primary_key=True)
        product = db.Column(db.String(20))

    login = {"current_user": SimpleNamespace(id=7)}
    names = run("flask", monkeypatch, models={"Order": Order, "db": db}, flask_login=login)
    app, locks = names["app"], names["locks"]
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    db.init_app(app)
    locks.init_app(app)
    with app.app_context():
        db.create_all()

    def log_in() -> None:
        db.session.execute(db.select(Order)).all()  # the transaction has begun before the view

    app.before_request(log_in)
    client = app.test_client()
    for status, product in ((201, "pot"), (201, "pot"), (422, "lid")):
        found = client.post("/orders", json={"product": product}, headers=KEY)
        assert found.status_code == status
    with app.app_context():
        assert db.session.query(Order).count() == 1
        locks.locks.close()
        db.engine.dispose()


@pytest.mark.parametrize("name", ["fastapi", "starlette"])
@pytest.mark.parametrize("kind", KINDS)
def test_asgi(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    database = new_database(kind, migrated=True)
    base: Any = declarative_base()

    class Order(base):  # type: ignore[misc]
        __tablename__ = "orders"
        id = Column(Integer, primary_key=True)
        product = Column(String(20))

    engine = create_engine(database.url)
    base.metadata.create_all(engine)
    monkeypatch.setenv("DATABASE_URL", async_url(database.url))
    shop: dict[str, Any] = {"__name__": "shop"}
    (block,) = blocks(page("fastapi.md"), "python")
    exec(compile(block, "fastapi.md", "exec"), shop)
    app = run(name, monkeypatch, models={"Order": Order, "NewOrder": NewOrder}, shop=shop)["app"]

    async def main() -> list[httpx.Response]:
        found = []
        async with shop["lifespan"](app) as state:

            async def serve(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(state)}, receive, send)

            transport = httpx.ASGITransport(serve)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                for product, headers in (("pot", KEY), ("pot", KEY), ("lid", KEY), ("pot", {})):
                    headers = {"X-Customer": "Ann", **headers}
                    json = {"product": product}
                    found.append(await client.post("/orders", json=json, headers=headers))
        return found

    first, again, *refused = asyncio.run(main())
    for reply in (first, again):
        assert (reply.status_code, reply.json()) == (201, {"order": 1})
        assert reply.headers.get("location") == ("/orders/1" if name == "fastapi" else None)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert [reply.status_code for reply in refused] == [422, 400]
    with engine.connect() as on:
        assert len(on.exec_driver_sql("SELECT id FROM orders").all()) == 1
    engine.dispose()
