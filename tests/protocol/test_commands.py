"""Every statement says what it asks for, in the same words for all databases."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dblock.dialects import DIALECTS, Dialect
from dblock.protocol import commands
from dblock.protocol.commands import Command
from dblock.protocol.rate import TakePlace
from dblock.protocol.state import Renewal
from dblock.protocol.statements import Statements
from dblock.protocol.steps import Query, count
from tests.protocol.stage import located

ASKED = (Renewal("report", "token", 30.0), Renewal("sales", "other", 5.0))
OWN, USERS = commands.LockRow("report", False), commands.LockRow("report", True)
ASKING = ("report", "token", "me", 30.0, "ticket")
CALL = ("order", "token", "fingerprint", 60.0)
#: How each statement is asked for, and what it says then.
#: For a registered statement: its command.
STATEMENTS: list[tuple[str, tuple[Any, ...], dict[str, Any], Command[Any]] | Command[Any]] = [
    ("grant", ("report", "token", "me", 30.0), {}, commands.Grant("report", "token", "me", 30.0)),
    ("grant_known", ASKING[:-1], {}, commands.Grant(*ASKING[:-1], known=True)),
    (
        "grant_slot",
        ("api", 3, "token", "me", 30.0),
        {"turnstile": "other", "first": 2},
        commands.GrantSlot("api", 3, "token", "me", 30.0, "other", 2),
    ),
    (
        "grant_slot",
        ("api", 3, "token", "me", 30.0),
        {"turnstile": "other", "first": 2, "known": True},
        commands.GrantSlot("api", 3, "token", "me", 30.0, "other", 2, known=True),
    ),
    ("look_at_slots", ("api", 2), {}, commands.LookAtSlots("api", 2)),
    ("set_limit", ("api", 3), {"anew": False}, commands.SetLimit("api", 3, False)),
    ("set_limit", ("api", 3), {"anew": True}, commands.SetLimit("api", 3, True)),
    ("join", ASKING, {}, commands.Join(*ASKING)),
    ("take", ASKING[:-1], {}, commands.Take(*ASKING[:-1])),
    (
        "join_readers",
        ("report", "group", "token", 30.0),
        {"ticket": "ticket", "past": False},
        commands.JoinReaders("report", "group", "token", 30.0, "ticket", False),
    ),
    (
        "leave_readers",
        ("report", "group", "token"),
        {},
        commands.LeaveReaders("report", "group", "token"),
    ),
    ("call_readers", ("report", "group"), {}, commands.CallReaders("report", "group")),
    ("wait_in_server", ("report", 0.25), {}, commands.WaitInServer("report")),
    ("release_and_unlock", ("report", "token"), {}, commands.ReleaseAndUnlock("report", "token")),
    ("unlock_all", (), {}, commands.UnlockAll()),
    ("leave", ("report", "token", "ticket"), {}, commands.Leave("report", "token", "ticket")),
    ("renew", (list(ASKED),), {}, commands.Renew(ASKED)),
    (
        "attach",
        ("report", "token", "new token", "me", 30.0),
        {},
        commands.Attach("report", "token", "new token", "me", 30.0),
    ),
    ("release", ("report", "token"), {}, commands.Release("report", "token")),
    ("pass_on", ("report", "token"), {}, commands.PassOn("report", "token", True)),
    ("pass_on", ("report", "token", False), {}, commands.PassOn("report", "token", False)),
    ("look_around", (), {}, commands.LookAround()),
    ("look_around", (), {"borrowed": True}, commands.LookAround()),
    ("look", ("report",), {}, commands.Look(("report",))),
    ("look", ("report", "sales"), {}, commands.Look(("report", "sales"))),
    (
        "look_queued",
        ("report", "token", "ticket"),
        {},
        commands.LookQueued("report", "token", "ticket"),
    ),
    ("held", (), {}, commands.ListHeld()),
    ("witness", (), {}, commands.ReadWitness()),
    ("write_witness", (), {}, commands.WriteWitness()),
    ("distrust", (30.0,), {}, commands.Distrust(30.0)),
    ("announce_ttl", (30.0,), {}, commands.AnnounceTtl(30.0)),
    ("record_ttl", (30.0,), {}, commands.RecordTtl(30.0)),
    ("create", ("report",), {}, commands.Create("report")),
    ("lock_row", ("report", 2.5), {"borrowed": False}, OWN),
    ("lock_row", ("report", 2.5), {"borrowed": True}, USERS),
    ("lock_row", ("report", 0.0), {"borrowed": False}, OWN),
    ("lock_row", ("report", 0.0), {"borrowed": True}, USERS),
    ("lock_row", ("report", None), {"borrowed": False}, OWN),
    ("guard", ("report", "token", 7), {}, commands.Guard("report", "token", 7)),
    ("apply", ("order",), {}, commands.Apply("order")),
    ("unapply", ("order",), {}, commands.Unapply("order")),
    ("gate", ("fences", "report", 7), {}, commands.Gate("report", 7)),
    ("claim_once", (*CALL, 2.5), {}, commands.ClaimOnce(*CALL)),
    ("claim_once", (*CALL, 0.0), {}, commands.ClaimOnce(*CALL)),
    ("claim_once", (*CALL, None), {}, commands.ClaimOnce(*CALL)),
    ("finish_once", ("order", "token", "{}"), {}, commands.FinishOnce("order", "token")),
    ("forget_once", ("order", "token"), {}, commands.ForgetOnce("order", "token")),
    (
        "register",
        ("id", "report"),
        {"strategy": "row", "owner": "me", "waited": 1.0, "lasts": 2.0, "holds": {"sales": 3}},
        commands.Register("id", "report", "row", "me", 1.0, 2.0, {"sales": 3}),
    ),
    ("unregister", ("id",), {}, commands.Unregister("id")),
    ("sweep", (), {}, commands.Sweep()),
    ("waiters", ("report",), {}, commands.ListWaiters("report")),
    ("waiters", (), {}, commands.ListWaiters(None)),
    ("blocked", (), {}, commands.ListBlocked()),
    commands.ReadClock(),
    commands.BeginRun("report", "day", 7, "me"),
    commands.EndRun("report", "day", 7, 1),
    commands.ForgetRun("report", "day", 7),
    commands.ListRuns("report", 5),
    commands.ListRuns("report", 1, "day"),
    commands.ListLastRuns(5),
    commands.ListHeldRuns(),
    ("row_locks", (), {}, commands.ListRowLocks(None)),
    ("row_locks", ("report",), {}, commands.ListRowLocks("report")),
    commands.PruneApplied(5.0),
    commands.PruneOnce(),
    commands.PruneRuns(5.0),
    ("look_for_unused", ("report", 60.0), {}, commands.LookForUnused("report", 60.0)),
    ("raise_floor", (7,), {}, commands.RaiseFloor(7)),
    commands.PruneValues(60.0),
    TakePlace("api", '"token"', 600_000, 60_000_000),
    (
        "write_value",
        ("report", "token", 7, "{}"),
        {},
        commands.WriteValue("report", "token", 7, "{}"),
    ),
    ("leader", ("report",), {}, commands.ReadLeader("report")),
    ("call_observers", ("report",), {}, commands.CallObservers("report")),
    ("retire", ("report", "sales", 7, 60.0), {}, commands.Retire("report", "sales", 7, 60.0)),
]

kinds = pytest.mark.parametrize("kind", sorted(DIALECTS))


def dialect_of(kind: str) -> Dialect:
    return located(kind)


class Case(NamedTuple):
    """A statement as one database has it, or MariaDB in a Galera cluster."""

    page: str
    dialect: Dialect
    method: str | None
    query: Query[Any]
    given: tuple[Any, ...]
    command: Command[Any]


def cases() -> Iterator[Case]:
    pages = {kind: dialect_of(kind) for kind in sorted(DIALECTS)}
    pages["galera"] = located("mariadb", clustered=True)
    for page, dialect in pages.items():
        for asked in STATEMENTS:
            if isinstance(asked, Command):
                if type(asked) not in dialect.unsupported:
                    yield Case(page, dialect, None, dialect.query(asked), (), asked)
                continue
            method, given, options, command = asked
            if method == "pass_on" and not dialect.can_notify:
                command = commands.Release(*given[:2])
            if method == "grant_known" and type(dialect).grant_known is Statements.grant_known:
                continue
            with contextlib.suppress(NotImplementedError):  # not every database has user locks
                query = getattr(dialect, method)(*given, **options)
                yield Case(page, dialect, method, query, given, command)


statements = pytest.mark.parametrize(
    "case", list(cases()), ids=lambda case: f"{case.page}-{case.query.kind}"
)


@statements
def test_a_statement_says_what_it_asks_for(case: Case) -> None:
    assert case.query.command == case.command
    assert type(case.query.command) is type(case.command)  # those without values are equal


@statements
def test_a_statement_that_is_more_than_a_count_says_how_it_is_read(case: Case) -> None:
    if case.method is None:
        return  # the types demand it
    method = getattr(type(case.dialect), case.method)
    counts = method.__annotations__["return"] == "Query[int]"
    assert counts or case.query.read is not count


@statements
def test_whether_it_is_durable_is_no_secret_of_its_text(case: Case) -> None:
    assert case.query.durable is ("'synchronous_commit', 'off'" not in case.query.sql)


@statements
def test_how_long_it_waits_is_no_secret_of_its_text(case: Case) -> None:
    dialect, query, command = case.dialect, case.query, case.command
    sql, patience = " ".join(query.sql.split()), query.patience
    if isinstance(command, commands.LockRow) and dialect.name != "sqlite":
        limit = dialect.longest_patience if dialect.name == "mariadb" else None
        assert patience == (limit if case.given[1] is None else case.given[1])
    elif isinstance(command, commands.ClaimOnce) and dialect.name != "sqlite":
        limit = dialect.longest_patience if dialect.name == "mariadb" else None
        assert patience == (limit if case.given[-1] is None else case.given[-1])
    elif isinstance(command, commands.WaitInServer):
        assert patience == case.given[-1]
    elif "'lock_timeout', '" in sql:
        assert f"'lock_timeout', '{1000 * (patience or 0):.0f}'" in sql
    elif "innodb_lock_wait_timeout = " in sql:
        assert f"innodb_lock_wait_timeout = {patience:.0f} " in sql
    elif (
        "SKIP LOCKED" in sql
        or "NOWAIT" in sql
        or (isinstance(command, commands.ListRowLocks) and dialect.one_writer)
    ):
        assert patience == 0
    else:  # the user's session has its own settings, dblock's have the database's here
        assert patience in (dialect.patience, None)


@kinds
def test_each_statement_is_listed_here(kind: str) -> None:
    made = {
        name
        for name, method in inspect.getmembers(DIALECTS[kind], inspect.isfunction)
        if not name.startswith("_")
        and name != "query"
        and method.__annotations__.get("return", "").startswith("Query[")
    }
    assert made == {asked[0] for asked in STATEMENTS if not isinstance(asked, Command)}


@kinds
def test_each_command_is_registered_or_unsupported(kind: str) -> None:
    listed = {type(asked) for asked in STATEMENTS if isinstance(asked, Command)}
    registered, unsupported = DIALECTS[kind].registered.keys(), DIALECTS[kind].unsupported.keys()
    assert registered | unsupported == listed
    assert not registered & unsupported


@statements
def test_its_parameters_are_those_of_its_text(case: Case) -> None:
    if case.method is None:
        mark = re.escape(case.dialect.name_parameter).replace("name", r"(\w+)")
        assert set(re.findall(mark, case.query.sql)) == set(case.query.params)


def test_the_words() -> None:
    words = {case.query.kind for case in cases()}
    assert words >= {
        "grant", "join", "look", "leave", "renew", "release", "guard", "lock_row", "create",
        "register", "unregister", "sweep", "list_blocked", "read_witness",
    }  # fmt: skip
    dialect = dialect_of("sqlite")
    assert dialect.release("report", "token").kind == "release"
    (begin,) = dialect.begin(1.0)
    assert (begin.kind, begin.patience) == ("begin", 1.0)
