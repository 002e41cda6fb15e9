"""The admin's pages: their words, times and ways back."""

from __future__ import annotations

import html
import re
from datetime import datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from sqlalchemy import event

from dblock import Locks
from dblock.contrib.django import locks
from dblock.contrib.django.admin_text import duration
from dblock.contrib.django.models import Run
from tests.conftest import EVER, Database
from tests.contrib.django.test_project import LIST, RUNS, manage
from tests.servers import execute
from tests.support import LONG

ODD = "a/b_c 'd' \"e\" <i>f</i> é %2F\n?#g " + "h" * 200
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d C[SD]T"  # where Django is without TIME_ZONE


@pytest.fixture
def client(dj: Database) -> Client:
    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


def viewer(*permissions: str) -> Client:
    user = User.objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def body(client: Client, address: str, query: dict[str, str] | None = None) -> str:
    reply = client.get(address, query, follow=True)
    assert reply.status_code == 200
    return reply.content.decode()


def listed(client: Client, address: str = LIST) -> list[dict[str, str]]:
    """The cells of each row of a list, by column."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", body(client, address), re.DOTALL)
    cell = r'class="[^"]*field-(\w+)[^>]*>(.*?)</t[dh]>'
    return [{k: text(v) for k, v in re.findall(cell, row, re.DOTALL)} for row in rows]


def page_of(client: Client, name: str) -> dict[str, str]:
    """What the page of one lock tells, by label."""
    return fields(body(client, f"{LIST}{quote(name)}/change/"))


def fields(page: str) -> dict[str, str]:
    pair = r"<label>(.*?):</label>\s*(?:</legend>)?\s*<div class=\"readonly\">(.*?)</div>"
    return {text(k): text(v) for k, v in re.findall(pair, page, re.DOTALL)}


def breadcrumbs(page: str) -> str:
    (found,) = re.findall(r'<(?:div|ol) class="breadcrumbs">(.*?)</(?:div|ol)>', page, re.DOTALL)
    # Newer versions of Django have the sign in their style sheet.
    return " ".join(
        text(found).replace("\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}", " ").split()
    )


def test_the_admin_has_one_word_for_each_state(client: Client, dj: Database) -> None:
    """The list, the page of one lock and dblock's own list."""
    seen = {}

    def look() -> None:
        told = {row["lock_name"]: row["state"] for row in listed(client)}
        for state in locks.list():
            assert told[state.name].partition(",")[0] == state.status
            assert page_of(client, state.name)["State"] == told[state.name]
        seen.update(told)

    with Locks(dj.url, label="night") as others:
        others.cron("kept", at_least=LONG)(lambda: None)()
        with (
            others.lease("held", ttl=LONG),
            others.shared("shared", ttl=LONG),
        ):
            assert others.lease("cut off", ttl=LONG, renew=False).acquire()
            when = {"postgresql": "now() - interval '2 min'", "sqlite": "'2020-01-01 00:00:00.000'"}
            then = when.get(dj.kind, "utc_timestamp(6) - interval 2 minute")
            set_back = f"UPDATE dblock_lock SET expires_at = {then} WHERE lock_name = 'cut off'"
            execute(dj.url, set_back)
            others.cron("running")(look)()
            assert page_of(client, "cut off")["Expires"].endswith(" ago")
            assert page_of(client, "cut off")["Held for"] == "-"
    assert {name: state.partition(" until")[0] for name, state in seen.items()} == {
        "kept": "done, kept",
        "held": "held",
        "shared": "held, shared by 1",
        "cut off": "expired",
        "running": "running",
    }
    assert re.fullmatch(rf"done, kept until {TIME}", seen["kept"])


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_admin_shows_times_with_seconds_in_the_projects_zone(
    client: Client, dj: Database, use_tz: bool
) -> None:
    def there(at: datetime) -> str:
        return f"{at.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d %H:%M:%S} JST"

    with Locks(dj.url) as others, override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Tokyo"):
        connection.close()  # the zone is the connection's on PostgreSQL

        @others.cron("nightly", once_for="today")
        def nightly() -> None:
            (state,) = others.list()
            assert state.acquired_at is not None
            assert state.run is not None
            page = page_of(client, "nightly")
            assert page["Since"] == there(state.acquired_at)
            started = there(state.run.started_at)
            assert page["Last run"] == f"running, started {started}"
            assert [run["started"] for run in listed(client, RUNS)] == [started]
            assert [lock["last_run"] for lock in listed(client)] == [f"running, started {started}"]

        nightly()
        (run,) = others.runs("nightly")
        assert run.ended_at is not None
        key = quote(Run.objects.get().pk)
        page = fields(body(client, f"{RUNS}{key}/change/"))
        assert (page["Started"], page["Ended"]) == (there(run.started_at), there(run.ended_at))
    connection.close()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (7.34, "7.3 s"),
        (60, "1 min 0 s"),
        (125.9, "2 min 5 s"),
        (3600, "1 h 0 min"),
        (86399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_the_admin_shows_a_duration_in_the_units_that_count(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_the_admin_shows_the_exit_status_of_a_run_that_failed(client: Client) -> None:
    assert manage("run", "breaks", "--", "sh", "-c", "exit 3") == 3
    assert manage("run", "killed", "--", "sh", "-c", "kill $$") == 143
    assert manage("run", "works", "--", "true") == 0
    assert {run["lock_name"]: run["outcome"] for run in listed(client, RUNS)} == {
        "breaks": "failed, exit status 3",
        "killed": "failed, exit status 143",
        "works": "succeeded",
    }
    failed = listed(client, f"{RUNS}?outcome=failed")
    assert sorted(run["lock_name"] for run in failed) == ["breaks", "killed"]
    key = quote(Run.objects.get(lock_name="breaks").pk)
    page = fields(body(client, f"{RUNS}{key}/change/"))
    assert page["Outcome"] == "failed, exit status 3"
    with locks.lease("breaks", ttl=LONG):
        (lock,) = listed(client)
        told = rf"failed, exit status 3, ended {TIME}"
        assert re.fullmatch(told, lock["last_run"])
        assert re.fullmatch(told, page_of(client, "breaks")["Last run"])


def test_the_admins_breadcrumbs_tell_the_application_from_its_pages(client: Client) -> None:
    assert breadcrumbs(body(client, LIST)) == "Home dblock Locks"
    assert breadcrumbs(body(client, RUNS)) == "Home dblock Runs"
    with locks.lease("nightly", ttl=LONG):
        page = body(client, f"{LIST}nightly/change/")
        assert breadcrumbs(page) == "Home dblock Locks nightly"
        take = {"action": "force_release", "_selected_action": "nightly"}
        page = client.post(LIST, take).content.decode()
        assert breadcrumbs(page) == "Home dblock Locks Take locks from their holders?"
    call_command("makemigrations", "dblock", check=True, dry_run=True, verbosity=0)


def test_the_admins_question_has_a_way_back_to_the_list_as_it_was(client: Client) -> None:
    address = f"{LIST}?{urlencode({'q': 'night', 'o': '2'})}"
    take = {"action": "force_release", "_selected_action": "nightly"}
    assert locks.lease("nightly", ttl=LONG).acquire()
    page = client.post(address, take).content.decode()
    back = f'<a href="{html.escape(address)}" class="button cancel-link">No, take me back</a>'
    assert back in page
    assert locks.show("nightly").held
    reply = client.post(address, {**take, "confirmed": "yes"})
    assert (reply.status_code, reply.headers["Location"]) == (302, address)
    assert not locks.show("nightly").held


def test_the_admins_page_of_a_lock_leads_back_to_the_list_as_it_was(client: Client) -> None:
    with locks.lease("nightly", ttl=LONG):
        address = f"{LIST}?q=night"
        (link,) = re.findall(r'href="([^"]*/nightly/change/[^"]*)"', body(client, address))
        page = body(client, html.unescape(link))
        assert re.search(f'<a [^>]*href="{re.escape(address)}" class="closelink">Close</a>', page)
    # By now it is free.
    reply = client.get(html.unescape(link))
    assert (reply.status_code, reply.headers["Location"]) == (302, address)
    assert "Nobody holds nightly any more" in body(client, html.unescape(link))


def test_the_admins_page_of_a_run_that_is_gone_leads_back_to_the_list(
    client: Client, dj: Database
) -> None:
    assert manage("run", "nightly", "--", "true") == 0
    (run,) = Run.objects.all()
    link = f"{RUNS}{quote(run.pk)}/change/?{urlencode({'_changelist_filters': 'q=night'})}"
    assert client.get(link).status_code == 200
    execute(dj.url, "DELETE FROM dblock_run")
    assert client.get(link).headers["Location"] == f"{RUNS}?q=night"
    assert f"Run {run.fence} of nightly is not on record any more" in body(client, link)


def test_the_admin_says_of_each_chosen_lock_that_nobody_holds_it_any_more(client: Client) -> None:
    with locks.lease("held", ttl=LONG):
        gone = {"action": "force_release", "_selected_action": ["given back"]}
        said = client.post(LIST, gone, follow=True).content.decode()
        assert "Nobody holds given back any more" in said
        some = {**gone, "_selected_action": ["given back", "held"]}
        asked = client.post(LIST, some).content.decode()
        assert "<bdi>held</bdi>, held by" in asked
        assert "Nobody holds given back any more" in asked
        assert "Take them" in asked


def test_the_admin_hides_the_way_to_runs_that_a_user_may_not_see(client: Client) -> None:
    with locks.lease("nightly", ttl=LONG):
        assert "Runs of this job" in body(client, f"{LIST}nightly/change/")
        may_look = viewer("view_lock")
        page = body(may_look, f"{LIST}nightly/change/")
        assert "Runs of this job" not in page
        assert fields(page)["State"] == "held"
        assert may_look.get(RUNS).status_code == 403


def test_the_admin_shows_any_name(client: Client) -> None:
    """With what is special in an address or in HTML, and as long as a name can be."""
    name = ODD[:255]
    assert locks.lease(name, ttl=LONG).acquire()
    page = body(client, LIST)
    assert "<i>f</i>" not in page
    (link,) = re.findall(r'href="([^"]*/dblock/lock/[^"]*/change/[^"]*)"', page)
    told = fields(body(client, html.unescape(link)))
    assert (told["Name"], told["State"]) == (" ".join(name.split()), "held")
    assert "field-lock_name" in body(client, LIST, {"q": "%2F\n?#G"})
    sent = name.replace("\n", "\r\n")  # as a browser does
    take = {"action": "force_release", "_selected_action": sent}
    asked = client.post(LIST, take).content.decode()
    assert "Nobody holds" not in asked
    assert "Take them" in asked
    take["confirmed"] = "yes"
    assert "Taken: a/b_c" in client.post(LIST, take, follow=True).content.decode()
    assert not locks.show(name).held


def test_the_admin_asks_as_often_for_many_locks_as_for_one(client: Client) -> None:
    asked: list[str] = []

    def count(address: str) -> tuple[int, int]:
        asked.clear()
        with CaptureQueriesContext(connection) as queries:
            body(client, address)
        return len(queries), len(asked)

    listen = (locks.engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    event.listen(*listen)
    try:
        pages = (LIST, RUNS, f"{LIST}1/change/")
        with locks.lease("1", ttl=EVER):
            for page in pages:  # the first time it asks for more
                count(page)
            few = [count(page) for page in pages]
            with locks.all(*(locks.lease(f"more {n}", ttl=EVER) for n in range(20))):
                assert [count(page) for page in pages] == few
    finally:
        event.remove(*listen)


def test_the_admin_sorts_by_every_column(client: Client) -> None:
    with locks.all(*(locks.lease(name, ttl=LONG) for name in "cab")):
        assert [row["lock_name"] for row in listed(client)] == ["a", "b", "c"]
        for address, columns in ((LIST, 8), (RUNS, 6)):
            for column in range(1, columns + 1):
                for sign in ("", "-"):
                    assert client.get(f"{address}?o={sign}{column}").status_code == 200
