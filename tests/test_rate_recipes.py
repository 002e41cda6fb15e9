"""The recipes of docs/rate.md: each framework answers 429 and says when to come back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx
import pytest

from tests.conftest import NewDatabase
from tests.patience import SECONDS
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "rate.md"
PER = 36000

#: Runs the recipe as the module of a project's views.
PROJECT = """
import sys, types
import django
from django.conf import settings
from django.test import Client
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["dblock.contrib.django"],
    MIDDLEWARE=["views.TooManyRequests"],
    ROOT_URLCONF="urls",
)
django.setup()
views = sys.modules["views"] = types.ModuleType("views")
exec(sys.argv[2], vars(views))
urls = sys.modules["urls"] = types.ModuleType("urls")
urls.urlpatterns = [path("report", views.report)]
client = Client()
for _ in range(3):
    answer = client.get("/report")
    print(answer.status_code, answer.headers.get("Retry-After"))
"""


def recipe(framework: str) -> str:
    """A recipe, with a limit of which nothing comes back within a test."""
    (block,) = blocks(PAGE, f"python {framework}")
    assert "100, per=60" in block
    return block.replace("100, per=60", f"2, per={PER}")


def check(get: Callable[[], Any], headers: Callable[[Any], Mapping[str, str]]) -> None:
    answers = [get() for _ in range(3)]
    assert {answer.status_code for answer in answers[:2]} == {200}
    assert answers[2].status_code == 429
    assert PER / 2 - SECONDS < int(headers(answers[2])["Retry-After"]) <= PER / 2


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


def test_flask(url: str) -> None:
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(recipe("flask"), str(PAGE), "exec"), names)
    app = names["create_app"]({"DBLOCK_URL": url})
    check(partial(app.test_client().get, "/report"), lambda answer: answer.headers)
    with app.app_context():
        names["locks"].locks.close()


def test_django(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROJECT, url.removeprefix("sqlite:///"), recipe("django")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *first, last = done.stdout.splitlines()
    assert first == ["200 None"] * 2
    status, after = last.split()
    assert status == "429"
    assert PER / 2 - SECONDS < int(after) <= PER / 2


def test_fastapi(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(recipe("fastapi"), str(PAGE), "exec"), names)
    asyncio.run(_ask(names["app"], names["lifespan"]))


async def _ask(app: Any, lifespan: Callable[[Any], Any]) -> None:
    async with lifespan(app) as state:

        async def server(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": state}, receive, send)

        transport = httpx.ASGITransport(server)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answers = [await client.get("/report") for _ in range(3)]
    check(iter(answers).__next__, lambda answer: answer.headers)
