"""What applications of Django, Flask and FastAPI use of dblock."""

from __future__ import annotations

import asyncio
from typing import assert_type

from django.http import HttpRequest, HttpResponse
from fastapi import FastAPI, Request
from flask import Flask
from flask import Request as FlaskRequest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dblock import (
    Counter,
    Cron,
    DetachedLease,
    Election,
    Lease,
    Locks,
    MultiLock,
    Once,
    Rate,
    RowLock,
    Semaphore,
    SharedLease,
)
from dblock.aio import AsyncLocks
from dblock.contrib import django as dj
from dblock.contrib.django import idempotent, using
from dblock.contrib.flask import DBLock
from dblock.contrib.serve import Application
from dblock.contrib.serve import app as lock_service
from dblock.contrib.starlette import idempotent as idempotent_route


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]


# --- Django ------------------------------------------------------------------------------------


@dj.locks.lease("nightly", wait=0)
def nightly(day: int) -> str:
    return str(day)


@dj.locks.skip("cleanup", ttl=60)
def cleanup(day: int) -> str:
    return str(day)


@dj.locks.skip("cleanup", ttl=60)
async def cleanup_async(day: int) -> str:
    return str(day)


@idempotent
def pay(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@idempotent(using="other", caller=lambda request: request.path, required=False)
def pay_other(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def django(field: object) -> None:
    assert_type(nightly(1), str)
    assert_type(cleanup(1), str | None)
    assert_type(asyncio.run(cleanup_async(1)), str | None)
    nightly("1")  # type: ignore[arg-type]
    stock = using("other").counter(field, floor=0)
    assert_type(stock.take(7, 3), bool)
    stock.take(7, "3")  # type: ignore[arg-type]
    with using().lease("report") as lease, lease.guard() as fence:
        assert_type(fence, int)
    using().lease("report", labels="web")  # type: ignore[call-arg]
    using().skip("cleanup", label=5)  # type: ignore[arg-type]
    using(5)  # type: ignore[arg-type]


# --- Flask -------------------------------------------------------------------------------------

app = Flask("shop")
locks = DBLock(app)


def whose(request: FlaskRequest) -> str:
    return request.path


@locks.locked("nightly", ttl=60, wait=0)
def nightly_flask(day: int) -> str:
    return str(day)


@locks.skip("cleanup", ttl=60)
def cleanup_flask(day: int) -> str:
    return str(day)


def flask(session: Session) -> None:
    locks.init_app(app)
    assert_type(locks.locks, Locks)
    assert_type(locks.acquire("report", ttl=60, wait=0), Lease)
    assert_type(locks.lease("report", ttl=30, wait=5, label="web"), Lease)
    assert_type(locks.shared("prices"), SharedLease)
    locks.attach("text", ttl=30).check()
    assert_type(locks.row("order:42", wait=2, on=session), RowLock)
    assert_type(locks.election("scheduler", max_hold=60), Election)
    assert_type(locks.semaphore("api", 3, wait=5), Semaphore)
    assert_type(locks.rate("api", 100, per=60), Rate)
    assert_type(locks.all(locks.lease("a"), wait=5), MultiLock)
    assert_type(locks.counter(Product.stock, key=Product.id), Counter)
    assert_type(locks.once(session, "order:42"), Once)
    assert_type(locks.cron("figures", once_per="day"), Cron)
    assert_type(locks.detached("import"), DetachedLease)
    assert_type(nightly_flask(1), str)
    assert_type(cleanup_flask(1), str | None)
    locks.idempotent(session, caller=whose)(nightly_flask)
    locks.lease("report", ttls=3)  # type: ignore[call-arg]
    locks.lease("report", label=3)  # type: ignore[arg-type]
    locks.row("order:42", on="session")  # type: ignore[arg-type]
    locks.semaphore("api", "3")  # type: ignore[arg-type]
    locks.counter("stock", key=Product.id)  # type: ignore[arg-type]
    locks.idempotent(session)  # type: ignore[call-arg]


# --- FastAPI -----------------------------------------------------------------------------------

api = FastAPI()
async_locks = AsyncLocks("postgresql+psycopg://app@db/app")


@api.post("/orders")
@idempotent_route(async_locks, caller=lambda request: request.url.path)
async def order(request: Request, session: AsyncSession) -> dict[str, int]:
    return {"id": 7}


def starlette() -> None:
    idempotent_route(async_locks)  # type: ignore[call-arg]
    idempotent_route("locks", caller=str)  # type: ignore[arg-type]


# --- the lock service --------------------------------------------------------------------------

service = lock_service(async_locks, tokens="tokens.toml", ttl_max=60, wait_max=10.5)
assert_type(service, Application)
api.mount("/locks", service)
service.stop()


def served(locks: Locks) -> None:
    lock_service(async_locks, local=True)
    lock_service(locks)  # type: ignore[arg-type]
    lock_service(async_locks, tokens=7)  # type: ignore[arg-type]
