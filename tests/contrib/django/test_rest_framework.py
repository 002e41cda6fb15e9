"""Django REST framework under `idempotent`: it makes answers of exceptions, and rolls back then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import Http404
from django.test import Client, override_settings
from django.urls import path
from rest_framework.authentication import BasicAuthentication
from rest_framework.exceptions import NotAuthenticated, PermissionDenied, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from dblock.contrib.django import idempotent
from tests.conftest import Database
from tests.contrib.django.conftest import Site, of
from tests.servers import execute


def sold() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT n FROM facts WHERE id = 0")
        return int(cursor.fetchone()[0])


class Orders(APIView):  # type: ignore[misc] # it has no types
    renderer_classes = (JSONRenderer,)
    authentication_classes = (BasicAuthentication,)

    def post(self, request: Request) -> Response:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE facts SET n = n + 1 WHERE id = 0")
        match request.data:
            case "invalid":
                raise ValidationError({"product": ["is not for sale"]})
            case "missing":
                raise Http404
            case "forbidden":
                raise PermissionDenied
            case "nobody":
                raise NotAuthenticated
            case "broken":
                raise KeyError("of the view")
            case "undone":
                transaction.set_rollback(True)
                return Response({"order": None}, status=409)
        return Response({"order": sold()}, status=201)


class Asked:
    """A client of an application in which the view is, with ATOMIC_REQUESTS or without."""

    def __init__(self, atomic: bool) -> None:
        self.atomic = atomic

    def post(self, order: str, key: str | None = None) -> tuple[int, bool, Any]:
        found = Client(raise_request_exception=False).post(
            "/orders",
            data=f'"{order}"',
            content_type="application/json",
            headers={"Idempotency-Key": f'"{key or order}"'},
        )
        body = found.json() if "json" in found.headers["Content-Type"] else None
        return found.status_code, found.headers.get("Idempotent-Replayed") == "true", body


@pytest.fixture(params=[True, False], ids=["atomic-requests", "autocommit"])
def asked(request: pytest.FixtureRequest, db: Database, site: Site) -> Iterator[Asked]:
    site.use(**of(db, ATOMIC_REQUESTS=request.param))
    execute(db.url, "CREATE TABLE facts (id INTEGER PRIMARY KEY, n INTEGER)")
    execute(db.url, "INSERT INTO facts VALUES (0, 0)")
    view = idempotent(caller=lambda asked: "Ann")(Orders.as_view())
    with override_settings(ROOT_URLCONF=(path("orders", view),), MIDDLEWARE=[]):
        yield Asked(request.param)


def test_it_runs_once(asked: Asked) -> None:
    assert asked.post("one") == (201, False, {"order": 1})
    assert asked.post("one") == (201, True, {"order": 1})
    assert sold() == 1


@pytest.mark.parametrize(
    ("order", "status"), [("invalid", 400), ("missing", 404), ("forbidden", 403)]
)
def test_an_exception_that_becomes_an_answer(asked: Asked, order: str, status: int) -> None:
    """With ATOMIC_REQUESTS it rolls back, so it is not recorded. Without them it commits."""
    (first, _, told), (again, replayed, repeated) = (asked.post(order) for _ in range(2))
    assert (first, again) == (status, status)
    assert told == repeated
    assert replayed is not asked.atomic
    assert sold() == (0 if asked.atomic else 1)
    if asked.atomic:
        assert asked.post("one", key=order)[0] == 201  # the key is as good as new


def test_an_exception_that_asks_to_try_again(asked: Asked) -> None:
    assert [asked.post("nobody")[:2] for _ in range(2)] == [(401, False)] * 2
    assert sold() == 0


def test_an_exception_that_is_none_of_its_own(asked: Asked) -> None:
    assert [asked.post("broken")[:2] for _ in range(2)] == [(500, False)] * 2
    assert sold() == 0


def test_a_view_that_rolls_back(asked: Asked) -> None:
    assert [asked.post("undone") for _ in range(2)] == [(409, False, {"order": None})] * 2
    assert sold() == 0
    assert asked.post("one", key="undone")[0] == 201
