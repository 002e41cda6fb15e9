"""What has to come of each fault at each statement of those who wait, as :mod:`.expected` has it.

What is found of a waiter, its place in the queue and its row in the table of waiters, was read in
the tables. A place that is there still is nobody's: whoever comes next passes it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.faults.matrix.expected import (
    MARIADB,
    MYSQL,
    PGBOUNCER,
    POSTGRESQL,
    Cell,
    Fault,
    Row,
    left,
    row,
)
from tests.faults.matrix.waiting import IN_QUEUE, ITS_ROW

GOT = Cell(("acquired",), ("held, fence 2",))
# The first term of what was passed on may be over when the waiter has connected again; and when it
# has waited for a deaf connection.
GOT_LATE = replace(GOT, found=("held, fence 2", "held, fence 3"))
AT_LAST = left(GOT_LATE)
REFUSED = Cell(("refused",), ("another's",))
PASSED = Cell(("released",), ("the next one's, fence 2",))
# The server does it when it runs on, and the next one has the name then.
NOT_TOLD = replace(PASSED, told=("OutcomeUnknown", "Unavailable"))
UNKNOWN = Cell(("Unavailable", "OutcomeUnknown"), ("another's",), perhaps=(IN_QUEUE, ITS_ROW))
IN_VAIN = Cell(("refused", "Unavailable"), ("another's",), perhaps=(IN_QUEUE, ITS_ROW))
# In the queue, or passed the name, for all it knows.
PERHAPS_CALLED = replace(IN_VAIN, told=("refused", "OutcomeUnknown"))
# The database came back once the waiter's time was over, and the waiter could leave the queue.
LEFT = Cell(("Unavailable",), ("another's",), perhaps=(ITS_ROW,))
# Once it is seen the name is released, to one who may know of nothing when the server is frozen.
RELEASED = replace(UNKNOWN, found=("another's", "free", "free within the TTL"))
LATE = Cell(("acquired",), ("held, fence 2", "free within the TTL"), perhaps=(ITS_ROW,))
# What was passed on may be granted anew: after a crash, or when its first term ran out in silence.
ANEW = Cell(("acquired",), ("held, fence 2", "held, fence 3"), perhaps=(ITS_ROW,))


def on(*where: str, made: Row, nth: int = 1, but: tuple[Fault, ...] = ()) -> Row:
    """Return a row of some databases; ``but`` are the faults that cannot meet it."""
    cells = {fault: cell for fault, cell in made.cells.items() if fault not in but}
    return replace(made, on=where, nth=nth, cells=cells)


THE_FAMILY = MARIADB, MYSQL
ALL = POSTGRESQL, PGBOUNCER, *THE_FAMILY
AS_A_CALL = Fault.REQUEST, Fault.STOPPED, Fault.RESTARTED  # it is no request
AT_A_SERVER = Fault.STOPPED, Fault.RESTARTED
WAITING_ROWS = (
    on(
        POSTGRESQL,
        made=row("wait", "find a channel", GOT, deaf=AT_LAST, stopped=UNKNOWN),
    ),
    on(POSTGRESQL, made=row("wait", "listen", GOT, deaf=AT_LAST, stopped=UNKNOWN)),
    on(POSTGRESQL, PGBOUNCER, made=row("wait", "join", GOT, stopped=UNKNOWN)),
    on(POSTGRESQL, made=row("wait", "call", GOT_LATE, deaf=AT_LAST), but=AS_A_CALL),
    on(PGBOUNCER, made=row("wait", "look in the queue", GOT), but=AT_A_SERVER),
    on(*THE_FAMILY, made=row("wait", "wait in the server", GOT, stopped=UNKNOWN)),
    on(*ALL, made=row("wait", "register", GOT, deaf=AT_LAST, stopped=UNKNOWN)),
    on(*ALL, made=row("wait", "sweep", GOT, deaf=AT_LAST, stopped=RELEASED, restarted=ANEW)),
    on(POSTGRESQL, made=row("wait", "renew", GOT, deaf=ANEW, stopped=RELEASED, restarted=ANEW)),
    on(PGBOUNCER, made=row("wait", "take", GOT), but=AT_A_SERVER),
    on(*THE_FAMILY, made=row("wait", "grant", GOT, stopped=RELEASED, restarted=ANEW), nth=2),
    on(*ALL, made=row("wait", "unregister", GOT, stopped=LATE, restarted=ANEW)),
    on(*THE_FAMILY, made=row("wait (fair)", "join", GOT, stopped=UNKNOWN)),
    on(*THE_FAMILY, made=row("wait (fair)", "look in the queue", GOT, stopped=UNKNOWN)),
    on(
        POSTGRESQL,
        PGBOUNCER,
        made=row(
            "wait (timeout)",
            "look in the queue",
            REFUSED,
            stopped=PERHAPS_CALLED,
            restarted=replace(PERHAPS_CALLED, instead=LEFT),
        ),
    ),
    on(
        POSTGRESQL,
        PGBOUNCER,
        made=row(
            "wait (timeout)", "leave", REFUSED, stopped=PERHAPS_CALLED, restarted=PERHAPS_CALLED
        ),
    ),
    on(*ALL, made=row("wait (timeout)", "unregister", REFUSED, stopped=IN_VAIN, restarted=IN_VAIN)),
    on(
        *THE_FAMILY,
        made=row("wait (timeout, fair)", "leave", REFUSED, stopped=IN_VAIN, restarted=IN_VAIN),
    ),
    on(*ALL, made=row("release (waited for)", "release", PASSED, stopped=NOT_TOLD)),
    on(
        POSTGRESQL, PGBOUNCER, made=row("release (waited for)", "pass on", PASSED, stopped=NOT_TOLD)
    ),
)
# Of those who wait, but met in the table before this one: they do not know yet that they will. And
# what a connection to MySQL asks while it is made.
BEFORE = "grant", "look", "recognise"


def rows_on(kind: str, fault: Fault | None = None, rows: Sequence[Row] = WAITING_ROWS) -> list[Row]:
    """Return the rows of a kind of database, all of them or those that a fault can meet.

    A pooler can be neither frozen nor killed here: to its clients both are a network's faults. And
    the sessions are its own, which it keeps.
    """
    where = {
        "postgresql": POSTGRESQL,
        "pgbouncer": PGBOUNCER,
        "mariadb": MARIADB,
        "mysql": MYSQL,
    }[kind]
    there = [row for row in rows if where in row.on]
    if where == PGBOUNCER:
        there = [_behind_a_pooler(row) for row in there]
    return [row for row in there if fault is None or fault in row.cells]


def _behind_a_pooler(made: Row) -> Row:
    cells: dict[Fault, Cell] = {
        fault: replace(cell, left=False)
        for fault, cell in made.cells.items()
        if fault not in AT_A_SERVER
    }
    return replace(made, cells=cells)
