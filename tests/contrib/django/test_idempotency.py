"""What is Django's about the header Idempotency-Key: users, blocks, templates, forms, classes."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import SimpleTemplateResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from dblock.contrib.django import idempotent, locks
from tests.conftest import Database, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.servers import execute

KEY = {"Idempotency-Key": '"8e03978e"'}


@pytest.fixture
def facts(dj: Database) -> Database:
    execute(dj.url, "CREATE TABLE facts (id INTEGER PRIMARY KEY, n INTEGER)")
    execute(dj.url, "INSERT INTO facts VALUES (0, 0)")
    return dj


def count(alias: str = "default") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("UPDATE facts SET n = n + 1 WHERE id = 0")
        cursor.execute("SELECT n FROM facts WHERE id = 0")
        return int(cursor.fetchone()[0])


def sold(alias: str = "default") -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT n FROM facts WHERE id = 0")
        return int(cursor.fetchone()[0])


def placed(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{count()}")


order = idempotent(placed)


def test_in_an_outer_block(facts: Database) -> None:
    """As with ATOMIC_REQUESTS: the record is rolled back with the block, or commits with it."""
    with transaction.atomic():
        assert raw(order).content == b"1"
        transaction.set_rollback(True)
    assert sold() == 0
    with transaction.atomic():
        assert raw(order).content == b"1"
    assert raw(order).content == b"1"
    assert sold() == 1


def raw(view: Any, body: str = "{}", **more: Any) -> Any:
    request = RequestFactory().post("/orders", body, content_type="a/b", headers=KEY, **more)
    return view(request)


def test_a_refusal_in_an_outer_block(facts: Database) -> None:
    @idempotent
    def broken(request: HttpRequest) -> HttpResponse:
        count()
        return HttpResponse(status=503)

    with transaction.atomic():
        count()
        assert raw(broken).status_code == 503
        assert raw(order).content == b"2"
        assert raw(order, "another").status_code == 422
    assert sold() == 2


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_users(facts: Database) -> None:
    call_command("migrate", verbosity=0)
    middleware = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    with override_settings(ROOT_URLCONF=(path("orders", order),), MIDDLEWARE=middleware):
        for at, name in enumerate((None, "ann", "bob"), 1):
            client = Client()
            if name is not None:
                client.force_login(User.objects.create_user(name))
            assert [client.post("/orders", headers=KEY).content for _ in range(2)] == [
                f"{at}".encode()
            ] * 2


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_template(facts: Database) -> None:
    """It is rendered in the transaction of the view, once."""
    template = engines["django"].from_string("order {{ count }}")

    @idempotent
    def rendered(request: HttpRequest) -> SimpleTemplateResponse:
        return SimpleTemplateResponse(template, {"count": count})

    assert [raw(rendered).content for _ in range(2)] == [b"order 1"] * 2


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_form_that_was_read_before(facts: Database) -> None:
    """As the check of a form's CSRF token does: multipart is a stream, which can be read once."""
    by_form = idempotent(fingerprint=lambda request: request.POST.dict())(placed)

    def send(view: Any, n: int) -> Any:
        request = RequestFactory().post("/orders", {"n": n}, headers=KEY)
        assert request.POST["n"] == f"{n}"
        return view(request)

    with pytest.raises(TypeError, match=r"read as a form before the view: .* fingerprint="):
        send(order, 1)
    assert [send(by_form, 1).content for _ in range(2)] == [b"1"] * 2
    assert send(by_form, 2).status_code == 422


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_classes(facts: Database) -> None:
    @method_decorator(idempotent, name="post")
    class Orders(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse(f"{count()}")

    class LaterOrders(View):
        async def post(self, request: HttpRequest) -> HttpResponse: ...  # type: ignore[empty-body]

    for view in (Orders.as_view(), idempotent(Orders.as_view())):
        assert [raw(view).content for _ in range(2)] == [b"1"] * 2
    with pytest.raises(TypeError, match="no transactions in those"):
        idempotent(LaterOrders.as_view())


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_what_is_no_response(facts: Database) -> None:
    @idempotent
    def wrong(request: HttpRequest) -> str:
        count()
        return "done"

    with pytest.raises(TypeError, match="returns an HttpResponse, not str"):
        raw(wrong)
    assert sold() == 0


def test_another_database(facts: Database, new_database: NewDatabase, site: Site) -> None:
    """The block, the record and the work are in the database of the alias."""
    other = new_database("sqlite", migrated=True)
    site.use("other", **of(other))
    execute(other.url, "CREATE TABLE facts (id INTEGER PRIMARY KEY, n INTEGER)")
    execute(other.url, "INSERT INTO facts VALUES (0, 0)")

    @idempotent(using="other")
    def there(request: HttpRequest) -> HttpResponse:
        assert connections["other"].in_atomic_block
        assert not connection.in_atomic_block
        return HttpResponse(f"{count('other')}")

    assert [raw(there).content for _ in range(2)] == [b"1"] * 2
    assert (sold(), sold("other")) == (0, 1)


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_call_of_its_own(facts: Database) -> None:
    """A refusal of another call, inside the view, is the view's own."""
    from dblock import KeyReused

    @idempotent
    def nested(request: HttpRequest) -> HttpResponse:
        for fingerprint in ("one", "two"):
            with locks.once("mine", fingerprint=fingerprint):
                pass
        return HttpResponse()

    with pytest.raises(KeyReused):
        raw(nested)
