"""A handover with Django: detached and attached in an atomic block, and outside of one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction
from django.test import RequestFactory

from dblock import Locks
from dblock.contrib.django import locks
from tests.conftest import Database
from tests.contrib.django.test_locks import add, facts, is_free, table
from tests.support import LONG, Threads
from tests.test_docs import ROOT, blocks


@pytest.fixture
def others(dj: Database) -> Iterator[Locks]:
    with Locks(dj.url) as made:
        yield made


def test_the_recipe(
    dj: Database, others: Locks, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    table()
    sent: list[str] = []
    shop: Any = ModuleType("shop")
    shop.report = type("Task", (), {"delay": staticmethod(sent.append)})
    shop.store_order = lambda request: add(1)
    monkeypatch.setitem(sys.modules, "shop", shop)
    names: dict[str, Any] = {}
    (block,) = blocks(ROOT / "docs" / "handover.md", "python django")
    exec(compile(block, "handover.md", "exec"), names)
    answer = names["ask_for_report"](RequestFactory().get("/"))
    assert answer.status_code == 202
    assert facts() == {1}
    assert not is_free(others, "report", threads)
    with others.attach(sent[0]):
        pass
    assert is_free(others, "report", threads)

    def failing(request: object) -> None:
        raise ZeroDivisionError

    names["store_order"] = failing
    with pytest.raises(ZeroDivisionError):
        names["ask_for_report"](RequestFactory().get("/"))
    assert len(sent) == 1
    assert is_free(others, "report", threads)


def test_detached_in_an_atomic_block(dj: Database, others: Locks, threads: Threads) -> None:
    with transaction.atomic(), locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    assert not is_free(others, "report", threads)
    with locks.attach(text) as taken:
        assert taken.held
    assert is_free(others, "report", threads)


def test_attached_around_an_atomic_block(dj: Database, others: Locks, threads: Threads) -> None:
    """Given back after the commit, as any lease of Django's."""
    with others.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    with transaction.atomic():
        with locks.attach(text, ttl=LONG):
            pass
        assert not is_free(others, "report", threads)
    assert is_free(others, "report", threads)


def test_in_a_coroutine(dj: Database, others: Locks, threads: Threads) -> None:
    with others.lease("report", ttl=LONG) as lease:
        text = lease.detach()

    async def main() -> None:
        async with locks.attach(text, ttl=LONG) as taken:
            assert taken.held

    asyncio.run(main())
    assert is_free(others, "report", threads)
