"""What has to come of each fault at each statement of the other kinds of locks.

As :mod:`.expected` has it for a lease: a slot and a share are taken and given back as that is. What
has changed nothing is Unavailable, and OutcomeUnknown is what nobody can find out.
"""

from __future__ import annotations

from dataclasses import replace

from tests.faults.matrix.expected import ACQUIRED, MYSQL, POSTGRESQL, RELEASED, Cell, Row, left, row
from tests.faults.matrix.expected_of_waiting import on

SHARED = Cell(("acquired",), ("shared by both",))
NOT_SHARED = Cell(("Unavailable",), ("another's",))
LEFT = Cell(("released",), ("another's",))
ATTACHED = Cell(("attached",), ("held, fence 1",))
PROCLAIMED = Cell(("proclaimed",), ("written",))
NOT_CALLED = Cell(("Unavailable",), ("once, by the repeat",))
NOT_LET_IN = Cell(("Unavailable",), ("not written",))

UNDECIDED = ("free", "free within the TTL")
A_SHARE_MORE = ("another's", "another's, and a share within the TTL")


def failing(cell: Cell) -> Cell:
    """Return the cell of a statement that is the user's own."""
    return replace(cell, told=("statement fails",))


def in_transaction(operation: str, statement: str, usual: Cell) -> Row:
    """Return the row of a statement in the user's transaction, whose session nobody ends."""
    return row(operation, statement, usual, deaf=left(usual))


def at_commit(nothing: str, done: str) -> dict[str, Cell]:
    """Return the cells of a commit, by whether it can have come to the server."""
    fails = Cell(("commit fails",), (nothing,))
    unknown = replace(fails, found=(done, nothing))
    return {
        "usual": unknown,
        "request": fails,
        "reply": replace(fails, found=(done,)),
        "deaf": left(fails),
        "restarted": fails,
    }


ROWS_OF_KINDS = (
    row("take a slot", "grant", ACQUIRED, stopped=Cell(("OutcomeUnknown",), UNDECIDED)),
    row("release a slot", "release", RELEASED, stopped=Cell(("OutcomeUnknown",), UNDECIDED)),
    # No grant comes to a name that another has.
    row("join readers", "grant", SHARED, stopped=Cell(("OutcomeUnknown",), NOT_SHARED.found)),
    row(
        "join readers",
        "look",
        SHARED,
        stopped=NOT_SHARED,
        restarted=Cell(SHARED.told + NOT_SHARED.told, SHARED.found + NOT_SHARED.found),
    ),
    row("join readers", "join readers", SHARED, stopped=Cell(("OutcomeUnknown",), A_SHARE_MORE)),
    row("leave readers", "leave readers", LEFT, stopped=Cell(("OutcomeUnknown",), A_SHARE_MORE)),
    row(
        "attach",
        "attach",
        ATTACHED,
        # The name can be looked at, so it is known whether the hold goes on here.
        deaf=Cell(("attached", "Unavailable"), ("held, fence 1", "detached")),
        stopped=Cell(("OutcomeUnknown",), ("detached", "free within the TTL")),
    ),
    row(
        "proclaim",
        "write a value",
        PROCLAIMED,
        stopped=Cell(("OutcomeUnknown",), ("written", "not written")),
    ),
    on(POSTGRESQL, made=in_transaction("once", "set a savepoint", NOT_CALLED)),
    # MySQL has no limit of one statement's wait, and no RETURNING.
    on(MYSQL, made=in_transaction("once", "limit the claim", NOT_CALLED)),
    in_transaction("once", "claim", NOT_CALLED),
    on(MYSQL, made=in_transaction("once", "read the claim", NOT_CALLED)),
    on(MYSQL, made=in_transaction("once", "end the limit", NOT_CALLED)),
    on(POSTGRESQL, made=in_transaction("once", "release the savepoint", NOT_CALLED)),
    in_transaction("once", "update", failing(NOT_CALLED)),
    in_transaction("once", "finish", NOT_CALLED),
    row("once", "commit", **at_commit("once, by the repeat", "once, at first")),
    in_transaction("gate", "recognise", NOT_LET_IN),
    in_transaction("gate", "gate", NOT_LET_IN),
    on(MYSQL, made=in_transaction("gate", "read the fence", NOT_LET_IN)),
    in_transaction("gate", "update", failing(NOT_LET_IN)),
    row("gate", "commit", **at_commit("not written", "written")),
)
