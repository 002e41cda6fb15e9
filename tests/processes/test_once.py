"""A call is killed before and after each of its statements: in the end there is one effect."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from dblock import Locks
from tests.conftest import KINDS, Database
from tests.processes.workers import Process, Say, Wait
from tests.support import Facts

#: What tells a statement, in the order in which a call sends them. On PostgreSQL a savepoint is
#: around the first of dblock's own, if something was done before. Then comes the commit.
STATEMENTS = {
    "savepoint": "SAVEPOINT dblock",
    "claim": "INSERT INTO",
    "release": "RELEASE SAVEPOINT dblock",
    "effect": "UPDATE facts",
    "finish": "SET result",
}
CALLS = [
    (kind, which)
    for kind in KINDS
    for which in (*STATEMENTS, "commit")
    if kind == "postgresql" or which not in ("savepoint", "release")
]


def make_call(locks: Locks, session: Session, *, begun: bool = False) -> tuple[Any, bool]:
    with session.begin():
        if begun:
            session.execute(text("SELECT 1"))
        with locks.once(session, "order-42") as call:
            if not call.replayed:
                session.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))
                call.result = "done"
            return call.result, call.replayed


def call_until(say: Say, wait: Wait, url: str, moment: str, which: str) -> None:
    """Make a call, and stop for ever before or after one of its statements."""
    engine = create_engine(url)

    def at(when: str, statement: str) -> None:
        if when == moment and STATEMENTS.get(which, which) in statement:
            say(which)
            wait()

    def before(*about: Any) -> None:
        at("before", about[2])

    def after(*about: Any) -> None:
        at("after", about[2])

    with Locks(url) as locks, Session(engine) as session:
        with session.begin(), locks.once(session, "another"):
            pass  # the server has been asked what it is
        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)
        event.listen(engine, "commit", lambda connection: at("before", "commit"))
        make_call(locks, session, begun=which in ("savepoint", "release"))
        at("after", "commit")
    say("not killed")


@pytest.mark.parametrize(("db", "which"), CALLS, indirect=["db"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_one_effect(db: Database, moment: str, which: str) -> None:
    engine = create_engine(db.url)
    facts = Facts(engine)
    with Process(call_until, db.url, moment, which) as victim:
        assert victim.message() == which
        victim.kill()
    committed = (moment, which) == ("after", "commit")
    assert facts.n == int(committed)
    with Locks(db.url) as locks, Session(engine) as session:
        assert make_call(locks, session) == ("done", committed)
        assert make_call(locks, session) == ("done", True)
    assert facts.n == 1
    engine.dispose()
