"""Counters on fields of models: in Django's transactions, on columns as migrations make them."""

# mypy: disable-error-code=var-annotated
# The types of fields are those of django-stubs' plugin, which is not used here.

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, models, transaction
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from dblock import NotEnough, OutcomeUnknown, Unavailable, Unsupported
from dblock.contrib.django import locks, using
from dblock.testing import Faults
from tests.conftest import Database, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.servers import execute
from tests.support import Threads, without_comments


class Product(models.Model):
    sku = models.CharField(max_length=20, unique=True)
    stock = models.PositiveIntegerField(default=10, db_column="In Stock")
    debt = models.IntegerField(default=0)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=Decimal("12.50"))
    weight = models.FloatField(default=1.5)
    few = models.PositiveSmallIntegerField(default=3)
    many = models.BigIntegerField(default=0)
    version = models.IntegerField(default=0)
    capped = models.IntegerField(default=0)
    unset = models.IntegerField(null=True)
    twice = models.GeneratedField(
        expression=F("debt") * 2, output_field=models.IntegerField(), db_persist=True
    )

    class Meta:
        app_label = "counting"
        db_table = "Group"
        constraints = (models.CheckConstraint(condition=models.Q(capped__lte=20), name="most"),)


class Book(Product):
    pages = models.IntegerField(default=100)

    class Meta:
        app_label = "counting"


class SameProduct(Product):
    class Meta:
        app_label = "counting"
        proxy = True


class Abstract(models.Model):
    n = models.IntegerField(default=0)

    class Meta:
        app_label = "counting"
        abstract = True


class Concrete(Abstract):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        app_label = "counting"


class Named(models.Model):
    name = models.CharField(primary_key=True, max_length=20, db_column="key")
    n = models.IntegerField(default=5)

    class Meta:
        app_label = "counting"


class Detail(models.Model):
    product = models.OneToOneField(
        Product, models.CASCADE, to_field="sku", primary_key=True, db_constraint=False
    )
    n = models.IntegerField(default=5)

    class Meta:
        app_label = "counting"


class Striped(models.Model):
    pk = models.CompositePrimaryKey("one", "two")
    one = models.IntegerField()
    two = models.IntegerField()
    number = models.IntegerField(unique=True)
    n = models.IntegerField(default=5)

    class Meta:
        app_label = "counting"


TABLES = (Product, Book, Concrete, Named, Detail, Striped)
stock = locks.counter(Product.stock)


@pytest.fixture
def product(dj: Database) -> Iterator[Product]:
    with connection.schema_editor() as editor:
        for model in TABLES:
            editor.create_model(model)
    yield Product.objects.create(sku="pot")
    connection.close()


def left(field: str = "stock") -> Any:
    return Product.objects.values_list(field, flat=True).get()


def test_take_and_add(product: Product) -> None:
    with transaction.atomic():
        assert stock.take(product.pk, 3) is True
        stock.add(product)
        assert stock.value(product.pk) == 8
        with pytest.raises(NotEnough, match=r"Group.In Stock of id 1 is 8.* less than 0") as error:
            stock.take(product.pk, 9)
        assert error.value.available == 8
        assert left() == 8  # and the block goes on
    assert left() == 8
    assert product.stock == 10
    product.refresh_from_db(fields=["stock"])
    assert product.stock == 8
    with pytest.raises(LookupError, match="Group has no row with id 99"):
        stock.take(99)


def test_it_is_the_blocks(product: Product) -> None:
    """Its rollback, its savepoints, its log."""

    def fail(n: int) -> None:
        with transaction.atomic():
            stock.take(product.pk, n)
            raise KeyError("of the block")

    with pytest.raises(KeyError):
        fail(1)
    assert left() == 10
    with transaction.atomic():
        stock.take(product.pk, 1)
        with pytest.raises(KeyError):
            fail(2)
        with CaptureQueriesContext(connection) as log:
            stock.take(product.pk, 4)
    assert left() == 5
    (sent,) = [without_comments(query["sql"]) for query in log.captured_queries]
    assert sent.split()[0] == "UPDATE"


def test_outside_of_any_block_it_commits(product: Product) -> None:
    stock.take(product.pk, 3)
    assert stock.update(product.pk, lambda n: n * 2) == 14
    assert not connection.in_atomic_block
    connection.close()
    assert left() == 14


def test_a_failed_block(product: Product) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(ValueError, match="already failed"):
            stock.take(product.pk)


def test_a_key_is_applied_once(product: Product) -> None:
    for first in (True, False):
        assert stock.take(product.pk, 3, idempotency_key="order 1") is first
    with pytest.raises(NotEnough):
        stock.take(product.pk, 30, idempotency_key="order 2")
    stock.take(product.pk, 1, idempotency_key="order 2")
    assert left() == 6


def test_a_change_that_fails_leaves_no_key(product: Product) -> None:
    """Where only the statement has failed, the transaction goes on."""
    capped = locks.counter(Product.capped)
    aborts = connection.vendor == "postgresql"
    with nullcontext() if aborts else transaction.atomic():
        with pytest.raises(IntegrityError):
            capped.add(product.pk, 21, idempotency_key="delivery")
        assert capped.add(product.pk, 1, idempotency_key="delivery") is True
    assert left("capped") == 1


def test_compare_and_update(product: Product) -> None:
    assert stock.compare_and_update(product, seen=10, new=4) is True
    assert stock.compare_and_update(product, seen=10, new=5) is False
    with pytest.raises(OverflowError, match=r"from 0 to .*Product\.stock, a PositiveIntegerField:"):
        stock.compare_and_update(product, seen=4, new=-1)
    versioned = locks.counter(Product.stock, version=Product.version)
    versioned.take(product.pk, 1)
    assert versioned.compare_and_update(product.pk, seen=0, new=7) is False
    assert versioned.compare_and_update(product.pk, seen=1, new=7) is True
    assert (left(), left("version")) == (7, 2)


def test_what_fields_hold(product: Product) -> None:
    price, weight = locks.counter(Product.price), locks.counter(Product.weight)
    price.take(product.pk, Decimal("0.75"))
    assert price.value(product.pk) == left("price") == Decimal("11.75")
    assert isinstance(price.value(product.pk), Decimal)
    assert price.update(product.pk, lambda value: value * 2) == Decimal("23.50")
    with pytest.raises(ValueError, match=r"2 decimals at most in .*Product\.price, a DecimalField"):
        price.take(product.pk, Decimal("0.001"))
    with pytest.raises(OverflowError):
        price.add(product.pk, Decimal("999990.00"))
    weight.take(product.pk, 0.25)
    assert left("weight") == 1.25
    debt = locks.counter(Product.debt, floor=None)
    debt.take(product.pk, 3)
    debt.add(product.pk, 1)
    assert left("debt") == -2
    many = locks.counter(Product.many, floor=None)
    many.add(product.pk, 2**63 - 1)
    with pytest.raises(OverflowError):
        many.add(product.pk)
    with pytest.raises(Unsupported, match="NULL"):
        locks.counter(Product.unset).add(product.pk)


def test_a_positive_field_has_the_floor_zero(product: Product) -> None:
    """With no floor told, and without an error of the database's, which would end the block."""
    few = locks.counter(Product.few, floor=None)
    least, most = connection.ops.integer_field_range("PositiveSmallIntegerField")
    with transaction.atomic():
        with pytest.raises(NotEnough) as error:
            few.take(product.pk, 4)
        assert error.value.available == 3
        named = "counting.Product.few, a PositiveSmallIntegerField"
        with pytest.raises(OverflowError, match=f"more than {most}, the most in {named}$"):
            few.add(product.pk, most)
        with pytest.raises(OverflowError, match=f"from {least} to {most} in {named}: {most + 1}$"):
            few.add(product.pk, most + 1)
        few.add(product.pk, most - 3)
        assert left("few") == most
        few.take(product.pk, most - least)
        assert left("few") == 0


def test_keys(product: Product) -> None:
    book = Book.objects.create(sku="book")
    stock.take(book, 2)  # its row is the parent's
    stock.take(SameProduct.objects.get(pk=book.pk), 1)
    locks.counter(Book.pages).take(book, 1)
    book.refresh_from_db()
    assert (book.stock, book.pages) == (7, 99)
    by_uuid = Concrete.objects.create()
    n = locks.counter(Concrete.n)
    n.add(by_uuid.pk)
    n.add(str(by_uuid.pk))
    n.add(by_uuid)
    assert Concrete.objects.get().n == 3
    assert n.value(by_uuid) == 3
    for name in ("a%b", "á "):
        named = Named.objects.create(name=name)
        locks.counter(Named.n).take(name, 2)
        locks.counter(Named.n).take(named, 2)
        assert Named.objects.get(pk=name).n == 1
    detail = Detail.objects.create(product=product)
    for key in (detail, "pot"):
        locks.counter(Detail.n).take(key, 1)
    assert Detail.objects.get().n == 3
    by_sku = locks.counter(Product._meta.get_field("stock"), key=Product.sku)
    by_sku.take("pot", 1)
    by_sku.take(product, 1)
    product.refresh_from_db()
    assert product.stock == 8
    striped = Striped.objects.create(one=1, two=1, number=7)
    locks.counter(Striped.n, key=Striped.number).take(striped)
    assert Striped.objects.get().n == 4
    with pytest.raises(ValueError, match="expected a number"):
        stock.take("seven")


def test_instances(product: Product) -> None:
    with pytest.raises(ValueError, match="is not saved"):
        stock.take(Product(pk=product.pk))
    with pytest.raises(TypeError, match="for instances of Product, not of Named"):
        stock.take(Named(name="a"))


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"field": "stock"}, TypeError, "a field of a model, as Product.stock"),
        ({"field": Product}, TypeError, "a field of a model"),
        ({"field": Product.sku}, TypeError, "an IntegerField, a DecimalField, .* is a CharField"),
        ({"field": Detail.product}, TypeError, "is a OneToOneField"),
        ({"field": Product._meta.pk}, ValueError, "is the primary key"),
        ({"field": Product.twice}, TypeError, "the database computes counting.Product.twice"),
        ({"field": Abstract.__dict__["n"]}, ValueError, "of an abstract model"),
        ({"field": Product.stock, "key": Product.price}, ValueError, "is not unique"),
        ({"field": Product.stock, "key": Named.name}, ValueError, "not fields of one model"),
        ({"field": Product.stock, "version": Named.n}, ValueError, "not fields of one model"),
        ({"field": Product.stock, "version": Product.sku}, TypeError, "a counter's version"),
        ({"field": Product.stock, "floor": "0"}, TypeError, "a counter's floor is a number"),
        (
            {"field": Product.stock, "stripes": 16},
            Unsupported,
            "no stripes, .* in one row",
        ),
        ({"field": Striped.n}, ValueError, "primary key of several fields: give key="),
    ],
)
def test_what_is_no_counter(wrong: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        locks.counter(**wrong)


class Router:
    """Products are in another database; an instance is where it came from."""

    def db_for_write(self, model: type[models.Model], **hints: object) -> str | None:
        return "shop" if model is Product and not hints else None


def test_the_database_is_the_routers(
    product: Product, site: Site, new_database: NewDatabase
) -> None:
    """Also one without the tables of the locks."""
    site.use("shop", **of(new_database("sqlite")))
    with connections["shop"].schema_editor() as editor:
        editor.create_model(Product)
    other = Product.objects.using("shop").create(pk=product.pk, sku="other")
    stock.take(other, 1)
    using("shop").counter(Product.stock).take(product.pk, 2)
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]):
        stock.take(product.pk, 3)
        stock.take(product, 1)
    assert left() == 9
    assert Product.objects.using("shop").get().stock == 4


def test_async(product: Product) -> None:
    async def work() -> None:
        await stock.atake(product.pk, 3)
        await stock.aadd(product, 1)
        assert await stock.avalue(product.pk) == 8
        assert await stock.acompare_and_update(product.pk, seen=8, new=5)
        assert await stock.aupdate(product.pk, lambda n: n + 1) == 6
        with pytest.raises(SynchronousOnlyOperation):
            stock.take(product.pk)

    def forget() -> None:
        """The connection that Django's thread has of an earlier test, or of this one."""
        connection.close()
        del connections["default"]

    async def main() -> None:
        await sync_to_async(forget)()
        try:
            await work()
        finally:
            await sync_to_async(forget)()

    asyncio.run(main())
    assert left() == 6


def test_many_at_once_sell_what_there_is(product: Product, threads: Threads) -> None:
    def buy() -> int:
        bought = 0
        try:
            while True:
                try:
                    with transaction.atomic():
                        stock.take(product.pk, 1)
                        bought += 1
                except NotEnough:
                    return bought
        finally:
            connection.close()

    buyers = [threads.start(buy) for _ in range(4)]
    assert sum(buyer.result() for buyer in buyers) == 10
    assert left() == 0


def test_a_commit_whose_reply_is_lost(pg: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been done: with an idempotency key it is safe to ask again."""
    with connection.schema_editor() as editor:
        editor.create_model(Product)
    product = Product.objects.create(sku="pot")
    commit = connection._commit  # type: ignore[attr-defined]

    def cut_off() -> None:
        monkeypatch.undo()
        execute(pg.url, f"SELECT pg_terminate_backend({backend()})")
        commit()

    def backend() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    monkeypatch.setattr(connection, "_commit", cut_off)
    with pytest.raises(OutcomeUnknown):
        stock.take(product.pk, 3, idempotency_key="order 1")
    connection.close()
    assert stock.take(product.pk, 3, idempotency_key="order 1") is True
    assert left() == 7


def test_a_transaction_whose_connection_broke(pg: Database) -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Product)
    product = Product.objects.create(sku="pot")

    def work() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            execute(pg.url, f"SELECT pg_terminate_backend({cursor.fetchone()[0]})")
            stock.take(product.pk)

    with pytest.raises(Unavailable, match="and with it the transaction"):
        work()
    connection.close()
    assert left() == 10


def test_a_database_that_is_away(site: Site) -> None:
    away = {"HOST": "127.0.0.1", "PORT": "1", "NAME": "shop", "USER": "app"}
    site.use(ENGINE="django.db.backends.postgresql", **away)
    with pytest.raises(Unavailable):
        stock.take(7)


def test_while_the_locks_are_a_tests(product: Product) -> None:
    with Faults(locks), transaction.atomic():
        stock.take(product.pk, 3, idempotency_key="order 1")
        locks.counter(Product.debt, floor=None).take(product.pk)
    assert (left(), left("debt")) == (7, -1)


def test_in_memory(site: Site) -> None:
    """Where nothing can be locked: a counter needs no lock."""
    site.use(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    with connection.schema_editor() as editor:
        editor.create_model(Product)
    stock.take(Product.objects.create(sku="pot"), 3)
    assert left() == 7


def test_calls_that_are_made_once_in_memory(site: Site) -> None:
    """They are on record in the only transaction that there is."""
    site.use(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    call_command("migrate", "dblock", verbosity=0)
    for replayed in (False, True):
        with transaction.atomic(), locks.once("key") as call:
            assert call.replayed == replayed
            if not replayed:
                call.result = 7
