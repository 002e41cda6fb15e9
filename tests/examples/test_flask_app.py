"""examples/flask_app: seats that are counted, mail that is sent under a lease."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import pytest

from tests.conftest import NewDatabase
from tests.examples.site import Site, environment, started
from tests.servers import FAMILY
from tests.support import SECONDS, Threads

SEATS = 30
TICKETS = "/concerts/1/tickets"


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    """Who sends mail waits until it is read."""
    made = tmp_path / "outbox"
    os.mkfifo(made)
    return made


@pytest.fixture(params=FAMILY)
def site(
    request: pytest.FixtureRequest, new_database: NewDatabase, tmp_path: Path, outbox: Path
) -> Iterator[Site]:
    url = new_database(request.param).url
    env = environment(tmp_path, DATABASE_URL=url, OUTBOX=str(outbox))
    with started("flask_app", "./start", env) as (site,):
        yield site


def buy(site: Site, who: int) -> int:
    """Buy until there are no more; return how many."""
    visitor, bought = site.visitor(), 0
    while (page := visitor.post(TICKETS, email=f"{who}@example.org")).status == 201:
        bought += 1
    assert (page.status, page.text) == (409, '{"error":"sold out"}\n')
    return bought


def test_flask_app(threads: Threads, site: Site, outbox: Path) -> None:
    assert f'"seats":{SEATS}' in site.visitor().get("/").text
    assert site.visitor().post("/concerts/2/tickets", email="a@example.org").status == 404
    buyers = [threads.start(buy, site, who) for who in range(8)]
    assert sum(buyer.result(SECONDS) for buyer in buyers) == SEATS
    assert '"seats":0' in site.visitor().get("/").text

    # One sends, and waits for its mail to be read; the others are told that it does.
    senders = [threads.start(site.visitor().post, "/reminders") for _ in range(3)]
    ended = as_completed(senders, SECONDS)
    for _ in range(2):
        page = next(ended).result()
        assert page.status == 503
        assert "'reminders' was not acquired within 0 s: held by" in page.text
    mails = outbox.read_text().splitlines()
    assert len(mails) == len(set(mails)) == SEATS
    assert next(ended).result().text == f'{{"sent":{SEATS}}}\n'

    # The lease is given back, and nobody is reminded twice.
    again = threads.start(site.visitor().post, "/reminders")
    assert outbox.read_text() == ""
    assert again.result(SECONDS).text == '{"sent":0}\n'
