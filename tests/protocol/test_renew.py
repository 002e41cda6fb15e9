"""The batch renewal, fed with replies and troubles instead of a database."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from dblock import LockLost, Timeouts, Unsupported
from dblock.dialects import SQLite
from dblock.dialects.query import Query
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held
from dblock.protocol.renew import Asked, RenewalFailed, Renewed, renew, renew_all
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Execute, Procedure, Reply
from dblock.protocol.term import Term
from tests.protocol import rows

T = TypeVar("T")
TTL = 30.0


class Rows(SQLite):
    """SQLite's statements, of a database where rows are locked one by one."""

    traits = replace(SQLite.traits, one_writer=False)


DIALECT = Rows(None, "dblock_", Timeouts())


def asked(count: int) -> list[Asked]:
    return [
        Asked(Renewal(f"name {n}", f"token {n}", TTL), Held(n, Term(90.0, TTL)))
        for n in range(count)
    ]


def held_from(hold: Asked, start: float) -> Asked:
    return replace(hold, held=hold.held._replace(term=Term(start, TTL)))


class Table:
    """Answers renewals and looks. ``now`` goes on by 1 with every step."""

    def __init__(self, holds: list[Asked]) -> None:
        self.rows = {h.renewal.name: (h.renewal.token, h.held.fence) for h in holds}
        self.now = 100.0
        self.skipped = False
        self.server: str | None = None
        self.busy: set[str] = set()
        self.troubles: dict[int, Fault] = {}
        self.count = 0
        self.within: set[float | None] = set()

    def run(self, protocol: Procedure[T]) -> T:
        reply: Any = None
        failure: StatementError | None = None
        while True:
            try:
                step = protocol.throw(failure) if failure else protocol.send(reply)
            except StopIteration as stop:
                outcome: T = stop.value
                return outcome
            sent, self.now, failure = self.now, self.now + 1, None
            if not isinstance(step, Execute):
                reply = Reply(None, sent, self.now)
                continue
            self.count += 1
            self.within.add(step.within)
            found = self.execute(DIALECT.query(step.command))
            fault = Fault.BUSY if found is None else self.troubles.get(self.count)
            if fault is not None:
                failure = StatementError(fault, "as if")
                failure.now = self.now
            else:
                told = rows.Rows(found or (), 0, sent, self.now, self.server)
                reply = told.read(DIALECT, step)

    def execute(self, query: Query[Any]) -> list[tuple[object, ...]] | None:
        assert isinstance(query.params, dict)
        if "asked" in query.params:
            rows = json.loads(query.params["asked"])
            if self.skipped:
                return []
            if any(name in self.busy for name, _, _ in rows):
                return None
            return [(t, 1) for n, t, _ in rows if self.rows.get(n, ("", 0))[0] == t]
        found = [name for name in query.params.values() if name in self.rows]
        return [
            (name, self.rows[name][1], self.rows[name][0], None, None, None, TTL, None)
            for name in found
        ]

    def renew_all(self, holds: list[Asked], within: float | None = None) -> list[Renewed]:
        outcomes, _ = self.run(renew_all(DIALECT, holds, within))
        return outcomes


def test_many_are_one_statement() -> None:
    holds = asked(500)
    table = Table(holds)
    assert table.renew_all(holds, 4.0) == [Term(100.0, TTL)] * 500  # from before the request
    assert table.count == 1
    assert table.within == {4.0}


def test_all_losses_are_explained_by_one_look() -> None:
    holds = asked(5)
    table = Table(holds)
    table.rows["name 1"] = ("another", 2)
    table.rows["name 2"] = ("another", 2)
    del table.rows["name 3"]
    outcomes = table.renew_all(holds)
    assert table.count == 2
    assert [o.reason if isinstance(o, LockLost) else None for o in outcomes] == [
        None, "forced", "attached", "forced", None,
    ]  # fmt: skip


@pytest.mark.parametrize("busy", [{0}, {6}, {2, 3}, {0, 1, 2, 3, 4, 5, 6}])
def test_a_busy_row_is_found_by_halving(busy: set[int]) -> None:
    holds = asked(7)
    table = Table(holds)
    table.busy = {f"name {n}" for n in busy}
    outcomes = table.renew_all(holds)
    assert {n for n, outcome in enumerate(outcomes) if isinstance(outcome, RenewalFailed)} == busy
    assert all(isinstance(outcomes[n], Term) for n in range(7) if n not in busy)
    assert not any(outcome.away for outcome in outcomes if isinstance(outcome, RenewalFailed))


def test_the_one_writer_is_not_asked_again_for_each_half() -> None:
    holds = asked(7)
    table = Table(holds)
    table.busy = {"name 1"}
    dialect = SQLite(None, "dblock_", Timeouts())
    outcomes, _ = table.run(renew_all(dialect, holds))
    assert [type(outcome) for outcome in outcomes] == [RenewalFailed] * 7
    assert table.count == 1


def test_a_connection_that_died_while_idle_is_replaced_once() -> None:
    holds = asked(3)
    table = Table(holds)
    table.troubles = {1: Fault.DISCONNECTED}
    assert table.renew_all(holds) == [Term(101.0, TTL)] * 3
    table.troubles = {3: Fault.DISCONNECTED, 4: Fault.DISCONNECTED}
    outcomes = table.renew_all(holds)
    assert table.count == 4
    assert all(isinstance(outcome, RenewalFailed) and outcome.away for outcome in outcomes)


def test_what_nobody_can_explain_is_no_loss_yet() -> None:
    holds = asked(2)
    table = Table(holds)
    del table.rows["name 1"]
    table.troubles = {2: Fault.UNREACHABLE}
    renewed, missed = table.renew_all(holds)
    assert isinstance(renewed, Term)
    assert isinstance(missed, RenewalFailed)


def test_a_row_that_is_there_was_merely_in_use() -> None:
    (hold,) = asked(1)
    table = Table([hold])
    table.skipped = True
    (outcome,) = table.renew_all([hold])
    assert isinstance(outcome, RenewalFailed)
    assert (outcome.failure.fault, outcome.away) == (Fault.BUSY, False)


def test_another_server_is_not_believed() -> None:
    holds = [
        replace(hold, held=hold.held._replace(server=server))
        for hold, server in zip(asked(3), ("one", "other", None), strict=True)
    ]
    table = Table(holds)
    table.server = "one"
    mine, strange, unknown = table.renew_all(holds)
    assert isinstance(strange, LockLost)
    assert strange.reason == "failover"
    assert [mine, unknown] == [Term(100.0, TTL)] * 2
    table.server = None  # behind a pooler
    assert all(isinstance(one, Term) for one in table.renew_all(holds))


# --- the holder's own --------------------------------------------------------------------------


def test_repeated_until_the_deadline() -> None:
    (hold,) = asked(1)
    table = Table([hold])
    table.troubles = {1: Fault.UNREACHABLE, 2: Fault.CANCELED}
    term = table.run(renew(DIALECT, hold, 100.0))
    assert term == Term(104.0, TTL)  # two tries and two pauses later
    for fault, reason in ((Fault.UNREACHABLE, "unreachable"), (Fault.BUSY, "expired")):
        table.troubles = dict.fromkeys(range(1, 1000), fault)
        with pytest.raises(LockLost) as caught:
            table.run(renew(DIALECT, held_from(hold, table.now), table.now))
        assert caught.value.reason == reason


def test_told_when_the_term_was_over() -> None:
    (hold,) = asked(1)
    table = Table([hold])
    with pytest.raises(LockLost) as caught:
        table.run(renew(DIALECT, held_from(hold, 100.5 - 0.9 * TTL), 100.0))
    assert caught.value.reason == "expired"
    assert table.count <= 2


def test_what_cannot_pass_is_raised() -> None:
    (hold,) = asked(1)
    table = Table([hold])
    table.troubles = {1: Fault.PRIVILEGE}
    with pytest.raises(Unsupported):
        table.run(renew(DIALECT, hold, 100.0))
