"""Every command has a statement on every database that does not say why it has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest

from dblock.dialects import DIALECTS, Dialect
from dblock.dialects.query import Query
from dblock.protocol import commands
from dblock.protocol.commands import Command
from dblock.protocol.rate import TakePlace
from dblock.protocol.state import Renewal
from tests.protocol.stage import located
from tests.servers import FAMILY

ASKED = (Renewal("report", "token", 30.0), Renewal("sales", "other", 5.0))
ASKING = ("report", "token", "me", 30.0, "ticket")
CALL = ("order", "token", "fingerprint", 60.0)
#: Each command, with values for each of its texts.
COMMANDS: list[Command[Any]] = [
    commands.Grant("report", "token", "me", 30.0),
    commands.Grant(*ASKING[:-1], known=True),
    commands.GrantSlot("api", 3, "token", "me", 30.0, "other", 2),
    commands.GrantSlot("api", 3, "token", "me", 30.0, "other", 2, known=True),
    commands.LookAtSlots("api", 2),
    commands.SetLimit("api", 3, anew=False),
    commands.SetLimit("api", 3, anew=True),
    commands.Join(*ASKING),
    commands.Take(*ASKING[:-1]),
    commands.JoinReaders("report", "group", "token", 30.0, "ticket", past=False),
    commands.LeaveReaders("report", "group", "token"),
    commands.CallReaders("report", "group"),
    commands.WaitInServer("report", 0.25),
    commands.ReleaseAndUnlock("report", "token"),
    commands.UnlockAll(),
    commands.Leave("report", "token", "ticket"),
    commands.Renew(ASKED),
    commands.Attach("report", "token", "new token", "me", 30.0),
    commands.Release("report", "token"),
    commands.PassOn("report", "token", True),
    commands.PassOn("report", "token", False),
    commands.LookAround(),
    commands.LookAround(borrowed=True),
    commands.Look(("report",)),
    commands.Look(("report", "sales")),
    commands.LookQueued("report", "token", "ticket"),
    commands.ListHeld(),
    commands.ReadWitness(),
    commands.WriteWitness(),
    commands.Distrust(30.0),
    commands.AnnounceTtl(30.0),
    commands.RecordTtl(30.0),
    commands.Create("report"),
    commands.SelectForUpdate("report", 2.5, borrowed=False),
    commands.SelectForUpdate("report", 2.5, borrowed=True),
    commands.SelectForUpdate("report", 0.0, borrowed=False),
    commands.SelectForUpdate("report", 0.0, borrowed=True),
    commands.SelectForUpdate("report", None, borrowed=False),
    commands.Guard("report", "token", 7),
    commands.Apply("order"),
    commands.Unapply("order"),
    commands.Gate("fences", "report", 7),
    commands.ClaimOnce(*CALL, 2.5),
    commands.ClaimOnce(*CALL, 0.0),
    commands.ClaimOnce(*CALL, None),
    commands.FinishOnce("order", "token", "{}"),
    commands.ForgetOnce("order", "token"),
    commands.Register("id", "report", "row", "me", 1.0, 2.0, {"sales": 3}),
    commands.Unregister("id"),
    commands.Sweep(),
    commands.ListWaiters("report"),
    commands.ListWaiters(None),
    commands.ListBlocked(),
    commands.ReadClock(),
    commands.BeginRun("report", "day", 7, "me"),
    commands.EndRun("report", "day", 7, 1),
    commands.ForgetRun("report", "day", 7),
    commands.ListRuns("report", 5),
    commands.ListRuns("report", 1, "day"),
    commands.ListLastRuns(5),
    commands.ListHeldRuns(),
    commands.ListRowLocks(None),
    commands.ListRowLocks("report"),
    commands.PruneApplied(5.0),
    commands.PruneOnce(),
    commands.PruneRuns(5.0),
    commands.LookForUnused("report", 60.0),
    commands.RaiseFloor(7),
    commands.PruneValues(60.0),
    TakePlace("api", '"token"', 600_000, 60_000_000),
    commands.WriteValue("report", "token", 7, "{}"),
    commands.ReadLeader("report"),
    commands.CallObservers("report"),
    commands.Retire("report", "sales", 7, 60.0),
    commands.Vote(*ASKING[:-1], "a,b,c"),
    commands.Stamp("report", "token", 7, "a,b,c", 30.0),
    commands.ReadMember(),
    commands.WriteMember(None, "a,b,c new", 30_000, 0.0),
    commands.WriteMember("a,b,c new", "a,b,c ", 30_000, 0.0),
    commands.RaiseFences(7),
    commands.EndSession(7, "2026-01-01 00:00:00+00"),
    commands.SeeHidden("dblock_lock"),
]

EVERY = {one for one in Command.__subclasses__() if one.__module__.startswith("dblock.protocol")}
#: The connections send these themselves.
SENT_OTHERWISE = {
    command
    for command in EVERY
    if command.__module__.endswith(".sessions") and command is not commands.EndSession
}
TRACES = Path(__file__).parent / "traces"
#: No procedure asks for these: a transaction or a session sends them around a procedure's
#: statements, or a counter and a gate in a statement's place.
WITHOUT_SCENE = {
    commands.Begin, commands.Commit, commands.Rollback, commands.Probe,
    commands.Savepoint, commands.UndoSavepoint, commands.EndSavepoint,
    commands.UnlockAll, commands.Apply, commands.Unapply, commands.Gate,
}  # fmt: skip

kinds = pytest.mark.parametrize("kind", sorted(DIALECTS))


def dialect_of(kind: str) -> Dialect:
    return located(kind)


class Case(NamedTuple):
    """A statement as one database has it, or MariaDB in a Galera cluster."""

    page: str
    dialect: Dialect
    query: Query[Any]
    command: Command[Any]


def cases() -> Iterator[Case]:
    pages = {kind: dialect_of(kind) for kind in sorted(DIALECTS)}
    pages["galera"] = located("mariadb", clustered=True)
    for page, dialect in pages.items():
        for command in COMMANDS:
            if isinstance(command, commands.PassOn) and not dialect.traits.can_notify:
                command = commands.Release(command.name, command.token)  # as the procedures do
            faster = isinstance(command, commands.Grant) and command.known
            if faster and not dialect.registered[commands.Grant].varies:
                continue
            if type(command) not in dialect.unsupported:
                yield Case(page, dialect, dialect.query(command), command)


statements = pytest.mark.parametrize(
    "case", list(cases()), ids=lambda case: f"{case.page}-{case.query.kind}"
)


@statements
def test_a_statement_says_what_it_asks_for(case: Case) -> None:
    assert case.query.command == case.command
    assert type(case.query.command) is type(case.command)  # those without values are equal


@statements
def test_whether_it_is_durable_is_no_secret_of_its_text(case: Case) -> None:
    assert case.query.durable is ("'synchronous_commit', 'off'" not in case.query.sql)


@statements
def test_how_long_it_waits_is_no_secret_of_its_text(case: Case) -> None:
    dialect, query, command = case.dialect, case.query, case.command
    sql, patience = " ".join(query.sql.split()), query.patience
    if isinstance(command, commands.SelectForUpdate) and dialect.name != "sqlite":
        limit = dialect.longest_patience if dialect.name in FAMILY else None
        assert patience == (limit if command.patience is None else command.patience)
    elif isinstance(command, commands.ClaimOnce) and dialect.name != "sqlite":
        limit = dialect.longest_patience if dialect.name in FAMILY else None
        assert patience == (limit if command.lock_timeout is None else command.lock_timeout)
    elif isinstance(command, commands.WaitInServer):
        assert patience == command.patience
    elif "'lock_timeout', '" in sql:
        assert f"'lock_timeout', '{1000 * (patience or 0):.0f}'" in sql
    elif "innodb_lock_wait_timeout = " in sql:
        assert f"innodb_lock_wait_timeout = {patience:.0f} " in sql
    elif dialect.name == "mysql" and re.match("(UPDATE|START|SET).*(NOWAIT|LOCKED)", sql):
        assert patience == dialect.patience  # some of its rows it may wait for
    elif (
        "SKIP LOCKED" in sql
        or "NOWAIT" in sql
        or (isinstance(command, commands.ListRowLocks) and dialect.traits.one_writer)
    ):
        assert patience == 0
    else:  # the user's session has its own settings, dblock's have the database's here
        assert patience in (dialect.patience, None)


@kinds
def test_each_command_is_registered_or_unsupported(kind: str) -> None:
    registered, unsupported = DIALECTS[kind].registered.keys(), DIALECTS[kind].unsupported.keys()
    assert registered | unsupported == EVERY - SENT_OTHERWISE
    assert not registered & unsupported


def test_the_encodings_are_those_of_the_annotations() -> None:
    """The base of commands reads the texts of annotations, so it has to know each spelling."""
    for command in EVERY:
        hints = get_type_hints(command, include_extras=True)
        found = {
            field: part.__metadata__[0]
            for field in command._fields
            for part in (hints[field], *get_args(hints[field]))
            if get_origin(part) is Annotated
        }
        assert command.encodings == found, command


def test_each_command_is_listed_here() -> None:
    assert {type(command) for command in COMMANDS} == EVERY - SENT_OTHERWISE


def test_each_command_has_a_scene() -> None:
    """In the traces of the procedures, if a procedure asks for it."""
    played = {*re.findall(r"\w+", "\n".join(page.read_text() for page in TRACES.glob("*.txt")))}
    assert {command for command in EVERY if command.word not in played} == WITHOUT_SCENE


@statements
def test_it_has_the_parameters_of_its_text(case: Case) -> None:
    mark = re.escape(case.dialect.name_parameter).replace("name", r"(\w+)")
    assert set(re.findall(mark, case.query.sql)) <= set(case.query.params)


@kinds
def test_a_command_that_a_database_does_not_have(kind: str) -> None:
    dialect = dialect_of(kind)
    for command in COMMANDS:
        if type(command) in dialect.unsupported:
            with pytest.raises(NotImplementedError, match=kind):
                dialect.query(command)


def test_the_words() -> None:
    words = {case.query.kind for case in cases()}
    assert words >= {
        "grant", "join", "look", "leave", "renew", "release", "guard", "lock_row", "create",
        "register", "unregister", "sweep", "list_blocked", "read_witness",
    }  # fmt: skip
    dialect = dialect_of("sqlite")
    assert dialect.query(commands.Release("report", "token")).kind == "release"
    (begin,) = dialect.begin(1.0)
    assert (begin.kind, begin.patience) == ("begin", 1.0)
