"""Migrations, checks, the command, the admin and tests of a Django project's own."""

from __future__ import annotations

import io
import re
import unittest
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core import checks
from django.core.management import CommandError, call_command
from django.core.serializers import serialize
from django.db import connection, transaction
from django.db.models.signals import post_migrate
from django.test import Client, TestCase, override_settings
from sqlalchemy import MetaData, Table, create_engine, inspect

from dblock import LockLost, Locks, NotAcquired, SchemaMissing, Unsupported, schema
from dblock.cli.child import restored
from dblock.contrib.django import locks
from dblock.contrib.django.management.commands.dblock import Command
from dblock.contrib.django.models import Lock, Run
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.schema import migration_lock, upgrade
from tests.conftest import Database, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.databases.test_look_alikes import YUGABYTE, lie
from tests.servers import FAMILY, execute
from tests.support import LONG, SECONDS, Threads, eventually

NAMES = tuple(schema.tables(MetaData()))


def reflected(url: str) -> MetaData:
    engine = create_engine(url)
    metadata = MetaData()
    metadata.reflect(engine, only=[f"dblock_{name}" for name in NAMES])
    engine.dispose()
    return metadata


def as_text(table: Table) -> list[str]:
    dialect = table.dialect_options
    return [
        *(f"{column!r} {column.type!r} {column.server_default!r}" for column in table.columns),
        str(sorted((str(c.name), [k.name for k in c.columns]) for c in [table.primary_key])),
        str({name: dict(options) for name, options in dialect.items()}),
    ]


def test_the_same_tables_as_alembics(empty: Database, new_database: NewDatabase) -> None:
    call_command("migrate", "dblock", "0001", verbosity=0)
    assert "dblock_run" not in tables(empty.url)
    call_command("migrate", "dblock", verbosity=0)
    another = new_database(empty.kind)
    upgrade(another.url)
    one, two = reflected(empty.url), reflected(another.url)
    for name in NAMES:
        assert as_text(one.tables[f"dblock_{name}"]) == as_text(two.tables[f"dblock_{name}"])
    with locks.lease("a", wait=0) as lease:
        assert lease.fence == 1
    upgrade(empty.url)  # sees that they are there, and another's
    call_command("migrate", "dblock", "zero", verbosity=0)
    assert "dblock_lock" not in tables(empty.url)


class CutOff(Exception):
    """Django's process ends here."""


@pytest.mark.parametrize("kind", FAMILY)
def test_a_migration_that_was_cut_off_is_run_again(
    new_database: NewDatabase, site: Site, kind: str
) -> None:
    """Also where the database keeps what was done before."""
    database = new_database(kind)
    site.use(**of(database))

    def cut_off(number: int, *target: str) -> bool:
        """Cut migrate off after so many changes of tables; False if there are not so many."""
        count = 0

        def execute(run: Any, sql: Any, *arguments: Any) -> Any:
            nonlocal count
            result = run(sql, *arguments)
            count += "dblock_" in sql and sql.split()[0] not in ("SELECT", "SHOW")
            if count == number:
                raise CutOff
            return result

        try:
            with connection.execute_wrapper(execute):
                call_command("migrate", "dblock", *target, verbosity=0)
        except CutOff:
            return True
        return False

    number = 1
    while cut_off(number):
        call_command("migrate", "dblock", verbosity=0)
        with locks.lease("a", wait=0):
            pass
        cut_off(number, "zero")
        call_command("migrate", "dblock", "zero", verbosity=0)
        assert not {name for name in tables(database.url) if name.startswith("dblock_")}
        number += 2
    assert number > SCHEMA_VERSION


def tables(url: str) -> set[str]:
    engine = create_engine(url)
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names


def test_tables_that_alembic_made_are_left_alone(dj: Database) -> None:
    with locks.lease("a", ttl=LONG):
        call_command("migrate", "dblock", verbosity=0)
        call_command("migrate", "dblock", "zero", verbosity=0)
    assert "dblock_lock" in tables(dj.url)


@override_settings(DBLOCK={"PREFIX": "app_", "LABEL": "web"})
def test_settings(empty: Database) -> None:
    call_command("migrate", "dblock", verbosity=0)
    with locks.lease("a", wait=0):
        state = locks.show("a")
        assert state.owner is not None
        assert state.owner.endswith("web")
    assert "app_lock" in tables(empty.url)


def test_makemigrations_has_nothing_to_add(dj: Database) -> None:
    call_command("makemigrations", "dblock", check=True, verbosity=0)


def test_migrations_are_for_the_one_database(empty: Database, site: Site) -> None:
    site.use("another", **of(empty))
    call_command("migrate", "dblock", database="another", verbosity=0)
    assert "dblock_lock" not in tables(empty.url)


# --- checks


def ids(**options: Any) -> set[str | None]:
    found = checks.run_checks(**options)
    return {message.id for message in found if str(message.id).startswith("dblock")}


def test_checks(dj: Database) -> None:
    assert ids(databases=["default"]) == set()
    deployed = ids(include_deployment_checks=True)
    assert deployed == ({"dblock.W001"} if dj.kind == "sqlite" else set())


def test_sqlmigrate_prints_the_statements(dj: Database) -> None:
    """Although the tables are there."""
    out = io.StringIO()
    call_command("sqlmigrate", "dblock", "0001", stdout=out)
    assert re.search(r"CREATE TABLE (IF NOT EXISTS )?\W?dblock_lock\W", out.getvalue())
    out = io.StringIO()
    call_command("sqlmigrate", "dblock", "0003", backwards=True, stdout=out)
    assert re.search(r"DROP TABLE (IF EXISTS )?\W?dblock_run\W", out.getvalue())
    assert locks.list() == []


def test_check_of_missing_tables(empty: Database) -> None:
    assert ids(databases=["default"]) == {"dblock.W003"}
    with pytest.raises(SchemaMissing, match=r"`manage\.py migrate dblock --database default`"):
        locks.show("nightly")
    assert ids() == set()
    err = io.StringIO()
    call_command("migrate", verbosity=0, skip_checks=False, stderr=err)
    assert "W003" not in err.getvalue()


@pytest.mark.parametrize(
    "wrong",
    [
        {"DATABASE": "nobody"},
        {"PREFIX": "a-b"},
        {"COLOUR": "red"},
        {"TIMEOUTS": {"x": 1}},
        {"TRUST_SERVER": "no"},
    ],
)
def test_check_of_settings(dj: Database, wrong: dict[str, Any]) -> None:
    with override_settings(DBLOCK=wrong):
        assert ids(tags=["compatibility"]) == {"dblock.E001"}


def test_a_look_alike(new_database: NewDatabase, site: Site) -> None:
    database = new_database("postgresql", migrated=True)
    lie(database, YUGABYTE)
    site.use(**of(database))
    assert ids(databases=["default"]) == {"dblock.E003"}
    with pytest.raises(Unsupported, match="YugabyteDB"):
        locks.lease("a", wait=0).acquire()
    with pytest.raises(Unsupported, match="YugabyteDB"), transaction.atomic():
        locks.row("a", wait=0).acquire()
    with override_settings(DBLOCK={"TRUST_SERVER": True}):
        with transaction.atomic(), locks.row("a", wait=0):
            pass
        with locks.lease("a", wait=0) as lease:
            assert lease.held


def test_mysql(new_database: NewDatabase, site: Site) -> None:
    """The server says what it is, also where dblock has no connection of its own yet."""
    site.use(**of(new_database("mysql", migrated=True)))
    assert ids(databases=["default"]) == set()
    with transaction.atomic(), locks.row("a", wait=0):
        pass
    with locks.lease("a", wait=0) as lease:
        assert lease.fence == 1


def test_check_of_a_pooler(new_database: NewDatabase, site: Site) -> None:
    pooled = new_database("pgbouncer", migrated=True)
    site.use(**of(pooled))
    assert ids(databases=["default"]) == {"dblock.W002"}
    site.use(**of(pooled, DISABLE_SERVER_SIDE_CURSORS=True))
    assert ids(databases=["default"]) == set()
    with transaction.atomic(), locks.row("a", wait=0):
        pass


def test_check_of_sqlite_in_memory(site: Site) -> None:
    site.use(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    assert ids(databases=["default"]) == {"dblock.W004"}
    with pytest.raises(Unsupported, match="in memory"):
        locks.show("a")


# --- what stays connected


def test_what_is_in_use_is_closed_when_put_back(dj: Database) -> None:
    for own in (locks._database.connections, locks._database.holders):
        one, other = own.take(), own.take()
        own.give(one)
        locks.disconnect()
        own.give(other)
        again = own.take()
        assert again not in (one, other)
        own.give(again)
        assert own.take() is again
        own.drop(again)


def test_what_was_decorated_outlives_other_settings(dj: Database) -> None:
    lease = locks.lease("a", wait=0)
    with override_settings(DBLOCK={"LABEL": "test"}), lease:
        assert locks.show("a").held
    with lease:
        pass


# --- the command


def manage(*arguments: str) -> int:
    with restored(), pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "dblock", *arguments])
    return int(end.value.code or 0)


def test_the_command(dj: Database, capfd: pytest.CaptureFixture[str]) -> None:
    assert manage("show", "nightly") == 1
    with locks.lease("nightly", ttl=LONG):
        assert manage("list", "--settings", "a.b", "--json") == 0
        assert '"nightly"' in capfd.readouterr().out
        assert manage("run", "nightly", "-n", "--", "true") == 75
        assert manage("show", "nightly") == 0
    assert manage("run", "nightly", "--", "sh", "-c", "exit 3") == 3
    assert manage("doctor", "--quiet") in (0, 1)
    assert manage("prune", "--older-than", "90d") == 0
    assert manage("prune", "--names", "--idle", "30d") == 0
    assert manage("nonsense") == 64
    capfd.readouterr()
    assert manage() == 64
    assert capfd.readouterr().err == "dblock: Missing command.\n"
    assert manage("--help") == 0
    assert manage("list", "--database", "default") == 0
    capfd.readouterr()
    for command in ("list", "migrate"):
        assert manage(command, "--database", "nobody") == 64
        assert "no such alias in DATABASES: 'nobody'" in capfd.readouterr().err
    assert manage("run", "nightly", "--once-for", "x", "--", "true") == 0
    capfd.readouterr()
    assert manage("runs", "nightly") == 0
    assert "\tx\t" in capfd.readouterr().out
    with pytest.raises(CommandError):
        call_command("dblock", "show", "nightly")


def call(*arguments: object, **options: Any) -> str:
    out = io.StringIO()
    call_command("dblock", *arguments, stdout=out, **options)
    return out.getvalue()


def test_call_command_with_options(dj: Database) -> None:
    held = locks.lease("nightly", ttl=LONG)
    assert held.acquire()
    for said in (call("list", "--json"), call("list", json=True)):
        assert '"nightly"' in said
    assert '"nightly"' in call("show", "--json", "nightly")
    assert '"nightly"' in call("show", "nightly", json=True)
    for how in ({"wait": 0}, {"nonblock": True}):
        with pytest.raises(CommandError) as refusal:
            call("run", "nightly", "--", "true", **how)
        assert refusal.value.returncode == 75
    call("run", "nightly", "--", "true", wait=0, conflict_exit_code=0)
    with pytest.raises(CommandError):
        call("release", "nightly")
    call("release", "nightly", force=True)
    assert not locks.show("nightly").held
    with pytest.raises(LockLost):
        held.release()
    call("prune", older_than="90d")
    call("prune", "--older-than", "90d")
    assert call("prune", names=True, idle="30d") == "deleted 0 names\n"
    call("run", "nightly", "--", "sh", "-c", "exit 0", once_per="day")
    call("migrate", "dblock", "--noinput", verbosity=0, database="default")


def test_call_command_refuses_what_is_no_option(dj: Database) -> None:
    with pytest.raises(CommandError, match="dblock show has no option 'force'"):
        call("show", "nightly", force=True)
    with pytest.raises(TypeError, match="colour"):
        call("show", "nightly", colour="red")
    with pytest.raises(CommandError) as refusal:
        call("show", "nightly", "--colour")
    assert refusal.value.returncode == 64


def test_migrate_under_a_lock(empty: Database) -> None:
    assert manage("migrate", "--verbosity", "0") == 0
    assert {"dblock_lock", "auth_user"} <= tables(empty.url)
    assert manage("migrate", "--verbosity", "0") == 0


def test_migrate_is_alone_to_its_end(empty: Database) -> None:
    """Also with no migration left: in its end two that made permissions met."""
    refused = []

    def at_its_end(**signal: Any) -> None:
        with locks.engine.connect() as connection:
            try:
                with migration_lock(connection, wait=0):
                    pass
            except NotAcquired as refusal:
                refused.append(refusal)

    post_migrate.connect(at_its_end, sender=apps.get_app_config("dblock"))
    try:
        for _ in range(2):
            assert manage("migrate", "--verbosity", "0") == 0
    finally:
        post_migrate.disconnect(at_its_end, sender=apps.get_app_config("dblock"))
        locks.engine.dispose()
    assert len(refused) == 2


# --- the admin


@pytest.fixture
def admin(pg: Database) -> Client:
    call_command("migrate", verbosity=0)
    user = User.objects.create_user("operator", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_lock"))
    client = Client()
    client.force_login(user)
    return client


LIST = "/admin/dblock/lock/"
TAKE = {"action": "force_release", "_selected_action": "nightly"}


def test_the_admin(admin: Client, pg: Database) -> None:
    with Locks(pg.url, label="the night's") as others:
        lease = others.lease("nightly", ttl=LONG)
        assert lease.acquire()
        page = admin.get(LIST).content.decode()
        assert "nightly" in page
        assert "the night" in page
        assert "force_release" not in page
        assert admin.post(LIST, TAKE).status_code in (200, 302)
        assert lease.locked()
        for address in ("add/", "nightly/delete/"):
            assert admin.get(LIST + address).status_code == 403
        assert "Save" not in admin.get(f"{LIST}nightly/change/").content.decode()

        user = User.objects.get()
        user.user_permissions.add(Permission.objects.get(codename="force_release_lock"))
        asked = admin.post(LIST, TAKE).content.decode()
        assert re.search("Until then two may be at work", asked)
        assert lease.locked()
        admin.post(LIST, {**TAKE, "confirmed": "yes"})
        assert not lease.locked()
        (entry,) = LogEntry.objects.all()
        assert (entry.object_id, entry.change_message[:10]) == ("nightly", "Taken from")


def test_the_admins_list_tells_all_of_a_lock(site: Site, dj: Database, threads: Threads) -> None:
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(User.objects.get())

    def wait() -> None:
        with Locks(dj.url) as waiting, waiting.lease("Nightly á"):
            pass

    def columns(row: str) -> dict[str, str]:
        cells = re.findall(r'class="field-(\w+)[^>]*>(.*?)</t[dh]>', row, re.DOTALL)
        return {name: re.sub(r"<[^>]*>", "", cell) for name, cell in cells}

    with Locks(dj.url) as others:

        @others.cron("Nightly á")
        def nightly() -> None:
            threads.start(wait)
            eventually(lambda: bool(others.show("Nightly á").waiters))
            page = client.get(LIST).content.decode()
            told.update(columns(page))
            for sought, there in (("nightly Á", True), ("ightl", True), ("nothing", False)):
                reply = client.get(LIST, {"q": sought})
                assert ("field-lock_name" in reply.content.decode()) is there
            assert client.get(f"{LIST}?o=3").status_code == 200  # sorted

        told: dict[str, str] = {}
        nightly()
    threads.join()
    assert told["lock_name"] == "Nightly á"
    assert (told["state"], told["waiting"]) == ("running", "1")
    assert told["last_run"].startswith("running, ")
    assert re.fullmatch(r"\d+\.\d s|\d+ min \d+ s", told["held_for"])


RUNS = "/admin/dblock/run/"


def rows(page: str) -> list[tuple[str, ...]]:
    """The job, the slot and the outcome of each run on a page."""
    fields = ("lock_name", "slot", "outcome")
    found = [re.findall(rf'class="field-{one}[^>]*>(.*?)</t[dh]>', page) for one in fields]
    return [tuple(re.sub(r"<[^>]*>", "", cell) for cell in row) for row in zip(*found, strict=True)]


def test_the_admins_list_of_runs(dj: Database) -> None:
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(User.objects.get())

    def listed(**query: str) -> list[tuple[str, ...]]:
        reply = client.get(RUNS, query)
        assert reply.status_code == 200
        return sorted(rows(reply.content.decode()))  # some may have begun in one millisecond

    def fail() -> None:
        raise KeyError("it failed")

    with Locks(dj.url, label="batch") as others:
        others.cron("a", once_for="one")(lambda: None)()
        with pytest.raises(KeyError):
            others.cron("a", once_for="two")(fail)()
        others.cron("dies", once_for="now")(lambda: None)()
        execute(
            dj.url, "UPDATE dblock_run SET ended_at = NULL, exit_status = NULL WHERE slot = 'now'"
        )

        @others.cron("Nightly á")
        def nightly() -> None:
            every = [
                ("Nightly á", "-", "running"),
                ("a", "one", "succeeded"),
                ("a", "two", "failed, exit status 1"),
                ("dies", "now", "unknown, no end on record"),
            ]
            assert listed() == every
            for run in every:
                assert listed(outcome=run[2].partition(",")[0]) == [run]
            assert listed(lock_name="a") == every[1:3]
            assert listed(q="nightly Á") == every[:1]
            assert listed(q="batch") == every
            assert listed(q="nobody") == []
            assert listed(started_at__gte="2020-01-01 00:00:00+00:00") == every
            assert listed(o="3") != []
            page = client.get(f"{LIST}{quote('Nightly á')}/change/").content.decode()
            (link,) = re.findall(r'href="(/admin/dblock/run/[^"]*)"', page.partition("Runs of")[0])[
                -1:
            ]
            assert rows(client.get(link).content.decode()) == every[:1]
            key = Run.objects.get(lock_name="Nightly á").pk
            assert "running" in client.get(f"{RUNS}{quote(key)}/change/").content.decode()

        nightly()


def test_a_slot_is_run_again_from_the_admin(admin: Client, pg: Database) -> None:
    user = User.objects.get()
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    ran = []
    with Locks(pg.url) as others:

        @others.cron("nightly", once_for="2026-11-21")
        def job() -> str:
            ran.append(1)
            return "ran"

        assert (job(), job()) == ("ran", None)
        others.cron("hourly")(lambda: None)()
        key = Run.objects.get(slot="2026-11-21").pk
        again = {"action": "reopen", "_selected_action": key}
        assert "Run these slots again" not in admin.get(RUNS).content.decode()
        admin.post(RUNS, {**again, "confirmed": "yes"})
        assert job() is None

        user.user_permissions.add(Permission.objects.get(codename="reopen_run"))
        open_slot = {**again, "_selected_action": Run.objects.get(lock_name="hourly").pk}
        said = admin.post(RUNS, open_slot, follow=True).content.decode()
        assert "no run of these has succeeded in a slot" in said
        asked = admin.post(RUNS, again).content.decode()
        assert "<bdi>nightly</bdi>, slot <bdi>2026-11-21</bdi>" in asked
        assert job() is None
        said = admin.post(RUNS, {**again, "confirmed": "yes"}, follow=True).content.decode()
        assert "Open: 2026-11-21 of nightly. The next start runs it" in said
        (entry,) = LogEntry.objects.all()
        assert (entry.is_deletion(), entry.object_id) == (True, key)
        assert entry.object_repr == "nightly 2026-11-21"
        assert job() == "ran"
        # A page that was open since before: that run is gone, and the next one is not touched.
        admin.post(RUNS, {**again, "confirmed": "yes"})
        assert job() is None
    assert len(ran) == 2


def test_who_may_only_look_cannot_guess_a_token(admin: Client, pg: Database) -> None:
    """Digit by digit, by whether the list is empty; nor by any other way to name a column."""
    with Locks(pg.url) as others, others.lease("nightly", ttl=LONG) as lease:
        told = set()
        for digit in "0123456789abcdef":
            for query in (f"token__startswith={digit}", f"token__gte={digit}", f"token={digit}"):
                reply = admin.get(f"{LIST}?{query}")
                told.add((reply.status_code, reply.headers.get("Location")))
                told.add((admin.get(f"{LIST}?e=1&{query}").status_code, None))
        assert told == {(302, f"{LIST}?e=1"), (200, None)}
        assert lease.token not in admin.get(f"{LIST}?_to_field=token").content.decode()
        by_token = f"{LIST}{lease.token}/change/?_to_field=token"
        assert admin.get(by_token).status_code == 400
        assert "nightly" in admin.get(f"{LIST}?owner__contains=pid").content.decode()
        assert "nightly" not in admin.get(f"{LIST}?q={lease.token}").content.decode()
        kept = serialize("json", Lock.objects.all()) + repr(list(Lock.objects.values()))
        assert lease.token not in kept


def test_a_name_steers_no_page(admin: Client, pg: Database) -> None:
    """A character that reverses what follows it ends with the name."""
    User.objects.get().user_permissions.add(Permission.objects.get(codename="force_release_lock"))
    with Locks(pg.url, label="me\u202e") as others:
        lease = others.lease("night\u202ely", ttl=LONG)
        assert lease.acquire()
        take = {**TAKE, "_selected_action": "night\u202ely"}
        assert "<bdi>night\u202ely</bdi>" in admin.post(LIST, take).content.decode()
        page = admin.post(LIST, {**take, "confirmed": "yes"}, follow=True).content.decode()
        assert r"Taken: night\u202ely, from " in page


def test_the_admin_shows_who_waits(admin: Client, pg: Database, threads: Threads) -> None:
    page = "/admin/dblock/lock/waited-for/change/"
    with Locks(pg.url, label="<first>") as first, Locks(pg.url, label="<second>") as others:
        holder = first.lease("waited-for")
        assert holder.acquire()
        assert "nobody waits" in admin.get(page).content.decode()
        taken = threads.start(others.lease("waited-for").acquire)
        eventually(lambda: bool(first.show("waited-for").waiters))
        shown = admin.get(page).content.decode()
        assert "&lt;second&gt; for " in shown
        holder.release()
        assert taken.result(SECONDS)
        others.release("waited-for", force=True)


def test_names_in_the_admins_model_are_exact(dj: Database) -> None:
    with locks.lease("é ", ttl=LONG):
        held = Lock.objects.get(lock_name="é ")
        assert held.lock_name == "é "
        assert held.expires_at is not None
        assert not Lock.objects.filter(lock_name="É ").exists()


# --- a TestCase


def test_in_a_test_case(pg: Database) -> None:
    """Django wraps each in a transaction that is rolled back; locks behave as in a view."""

    class Case(TestCase):
        def test_row(self) -> None:
            with transaction.atomic(), locks.row("order:42", wait=0):
                assert connection.in_atomic_block

        def test_lease(self) -> None:
            with locks.lease("report", wait=0):
                pass
            assert not locks.show("report").held
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                with locks.lease("report", wait=0):
                    pass
                assert locks.show("report").held
            assert not locks.show("report").held

    result = unittest.TextTestRunner(stream=io.StringIO()).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Case)
    )
    assert result.testsRun == 2
    assert not result.errors + result.failures, result
