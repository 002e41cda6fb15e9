"""examples/shop: orders, the nightly report and the lock that keeps both right."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.examples.conftest import Manage
from tests.examples.site import Site, started
from tests.servers import execute
from tests.support import SECONDS, Threads

STOCK = 30


@pytest.fixture
def shops(env: dict[str, str]) -> Iterator[list[Site]]:
    """Two hosts with the shop, started at the same time on an empty database."""
    with started("shop", "./start", env, times=2) as sites:
        yield sites


def order(site: Site, quantity: int) -> int:
    """Order until there are not as many; return how many were bought."""
    visitor, bought = site.visitor(), 0
    visitor.get("/")
    while (page := visitor.post("/products/1/order", quantity=quantity)).status in (200, 503):
        if page.status == 200:
            assert f"{quantity} of Teapot" in page.text
            bought += quantity
    assert page.status == 409, page.text + site.said
    assert "of Teapot left" in page.text
    return bought


@pytest.mark.parametrize("env", ["postgresql", "mysql"], indirect=True)
def test_orders_and_the_report(
    threads: Threads, shops: list[Site], env: dict[str, str], manage: Manage
) -> None:
    for site in shops:
        assert "Teapot: 30 left" in site.visitor().get("/").text, site.said
    migrated = [site.said.count("Applying dblock.0001_lock_table") for site in shops]
    assert sorted(migrated) == [0, 1]

    buyers = [threads.start(order, shops[n % 2], 1 + n % 3) for n in range(8)]
    bought = sum(buyer.result(SECONDS) for buyer in buyers)
    # Whoever wanted one only stopped when there was none.
    assert bought == STOCK
    assert "Teapot: 0 left" in shops[0].visitor().get("/").text
    url = env["DATABASE_URL"]
    (sold,) = execute(url, "SELECT count(*), sum(quantity) FROM shop_order")
    assert sold[1] == STOCK

    reports = [threads.start(manage, "python manage.py nightly_report") for _ in range(3)]
    said = [report.result(SECONDS) for report in reports]
    made = [text for text in said if re.match(r"Report \d+", text)]
    assert made == [f"Report 1: {sold[0]} orders, {STOCK} pieces\n"]
    assert execute(url, "SELECT count(*) FROM shop_report") == [(1,)]
