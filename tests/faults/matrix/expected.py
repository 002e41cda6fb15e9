"""What has to come of each fault at each statement: the matrix as data, for all databases.

A cell says what the caller may be told, and what may then be found in the tables, read directly
once the fault is over and every session of the client is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

# Bytes that occur in one statement only, of all that the operations send; the first that is
# found in a request names it. Commit is the last: some statements commit by themselves.
STATEMENTS: Mapping[str, bytes] = {
    "join readers": b"THEN readers ELSE",
    "leave readers": b"readers = REPLACE(readers",
    "attach (PostgreSQL)": b"AS l SET token = ",
    "attach (MariaDB)": b"LAST_INSERT_ID(fence),",
    "write a value": b"fence BETWEEN 1 AND",
    "release the savepoint": b"RELEASE SAVEPOINT",
    "set a savepoint": b"SAVEPOINT dblock",
    "limit the claim": b"SET @dblock_wait",
    "claim": b"(idempotency_key, token, fingerprint",
    "read the claim": b"token, fingerprint, result FROM `matrix`.`dblock_once`\n            WHERE",
    "end the limit": b"= @dblock_wait",
    "finish": b"SET result = ",
    "gate": b"(name, fence) VALUES (",
    "read the fence": b"SELECT fence FROM `dblock_fence`",
    "join (PostgreSQL)": b"array_append(",
    "join (MariaDB)": b"CONCAT_WS(',', waiters",
    "leave (PostgreSQL)": b"SET waiters = (SELECT pg_catalog.array_agg(",
    "leave (MariaDB)": b"TRIM(BOTH",
    "pass on": b"FROM newest LEFT JOIN first",
    "take": b"mine.position",
    "look in the queue (PostgreSQL)": b"CASE WHEN (SELECT number FROM pg_catalog.unnest(waiters)",
    "look in the queue (MariaDB)": b"CASE WHEN (LOCATE(",
    "wait in the server": b"GET_LOCK(",
    "unlock": b"RELEASE_ALL_LOCKS",
    "find a channel": b"pg_try_advisory_lock(",
    "listen": b"LISTEN dblock_",
    "register": b"(id, lock_name, strategy",
    "unregister (PostgreSQL)": b'"dblock_waiter" WHERE id = ',
    "unregister (MariaDB)": b"`dblock_waiter` WHERE id = ",
    "sweep (PostgreSQL)": b'"dblock_waiter" WHERE id IN',
    "sweep (MariaDB)": b"DELETE w FROM (SELECT id",
    "sweep (MySQL)": b"JSON_ARRAYAGG(id)",
    "grant": b"acquired_at = ",
    "look": b"SELECT lock_name, fence, token, owner",
    "renew (PostgreSQL)": b"secs => mine.ttl",
    "renew (MariaDB)": b"INTERVAL asked.ttl",
    "release": b"SET token = NULL",
    "guard (PostgreSQL)": b"FOR KEY SHARE SKIP LOCKED",
    "guard (MariaDB)": b"LOCK IN SHARE MODE NOWAIT",
    "guard (MySQL)": b"1 FROM `matrix`.`dblock_guard` WHERE",
    "recognise (PostgreSQL)": b"SELECT version()",
    "recognise (MariaDB)": b"SELECT VERSION(), @@version_comment",
    "describe (PostgreSQL)": b"pg_catalog.pg_attribute.attname",
    "describe (MariaDB)": b"SHOW CREATE TABLE",
    "apply": b"(idempotency_key, applied_at)",
    "update": b"UPDATE stock SET",
    "commit": b"COMMIT",
}


POSTGRESQL, PGBOUNCER, MARIADB, MYSQL = "PostgreSQL", "PgBouncer", "MariaDB", "MySQL"


class Fault(StrEnum):
    """What happens at the moment a statement's request is on its way."""

    REQUEST = "lost request"
    REPLY = "lost reply"
    RESET = "reset"
    DEAF = "deaf"
    STOPPED = "server stopped"
    RESTARTED = "server restarted"


MEANING: Mapping[Fault, str] = {
    Fault.REQUEST: "the connection is cut and the server never sees the request",
    Fault.REPLY: "the server executes the request; the connection is cut before the reply",
    Fault.RESET: "the request is passed on, and all connections of the client are reset at once",
    Fault.DEAF: "from this request on the connection carries nothing in either direction, not even "
    "its end; the network still acknowledges",
    Fault.STOPPED: "the server is frozen (SIGSTOP) with the request in its buffer, and resumes "
    "when the caller has its result",
    Fault.RESTARTED: "the server crashes (SIGKILL) before it reads the request, and comes back",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """``told`` and ``found`` are the ways it may go; any other is a defect.

    ``left``: the session of the user's transaction stays on the server until that notices the dead
    connection. It is not dblock's to end, which does not even know which one it is.
    """

    told: tuple[str, ...]
    found: tuple[str, ...]
    left: bool = False
    #: What of a waiter may be there as well, or may not.
    perhaps: tuple[str, ...] = ()
    #: Another way the whole may go, where what is told decides what may be found.
    instead: Cell | None = None

    def __str__(self) -> str:
        text = f"{' or '.join(self.told)}; {' or '.join(self.found)}"
        text += "".join(f", perhaps {what}" for what in self.perhaps)
        text += "; the session is left" * self.left
        return text if self.instead is None else f"{text}, or: {self.instead}"


@dataclass(frozen=True, slots=True)
class Row:
    """One statement of an operation; ``cells`` has one for each fault that can meet it."""

    operation: str
    statement: str
    cells: Mapping[Fault, Cell]
    nth: int = 1  # of this operation's statements of this name
    on: tuple[str, ...] = (POSTGRESQL, MARIADB, MYSQL)


def row(operation: str, statement: str, usual: Cell, **special: Cell) -> Row:
    """Return a row whose cells are the ``usual`` one where none is given for a fault."""
    cells = {fault: special.pop(fault.name.lower(), usual) for fault in Fault}
    assert not special, special
    return Row(operation, statement, cells)


ACQUIRED = Cell(("acquired",), ("held, fence 1",))
REFUSED = Cell(("refused",), ("another's, untouched",))
RENEWED = Cell(("renewed",), ("held, renewed",))
RELEASED = Cell(("released",), ("free",))
COMMITTED = Cell(("committed",), ("written",))
NOT_GUARDED = Cell(("Unavailable",), ("not written",))
# A proof that a later break of the user's connection makes void: nothing can commit by it.
COMMIT_FAILS = Cell(("commit fails",), ("not written",))
TAKEN = Cell(("taken",), ("once, after a repeat",))
NOT_TAKEN = Cell(("Unavailable",), ("once, after a repeat",))
TAKE_UNKNOWN = Cell(("commit fails",), ("once, after a repeat",))


def left(cell: Cell) -> Cell:
    return replace(cell, left=True)


ROWS = (
    row(
        "acquire (free)",
        "grant",
        ACQUIRED,
        stopped=Cell(("OutcomeUnknown",), ("free", "free within the TTL")),
    ),
    row(
        "acquire (held)",
        "grant",
        REFUSED,
        stopped=Cell(("OutcomeUnknown",), REFUSED.found),
    ),
    row(
        "acquire (held)",
        "look",
        REFUSED,
        stopped=Cell(("Unavailable",), REFUSED.found),
        restarted=Cell(("refused", "Unavailable"), REFUSED.found),
    ),
    row(
        "renew",
        "renew",
        RENEWED,
        stopped=Cell(("LockLost",), ("free within the TTL",)),
    ),
    row(
        "release",
        "release",
        RELEASED,
        stopped=Cell(("OutcomeUnknown", "Unavailable"), ("free", "free within the TTL")),
    ),
    row("guard", "guard", NOT_GUARDED, deaf=left(NOT_GUARDED)),
    row(
        "guard",
        "look",
        COMMITTED,
        reset=COMMIT_FAILS,
        stopped=Cell(("Unavailable", "LockLost"), ("not written",)),
        restarted=COMMIT_FAILS,
    ),
    row(
        "guard",
        "commit",
        Cell(("commit fails",), ("written", "not written")),
        request=COMMIT_FAILS,
        reply=Cell(("commit fails",), ("written",)),
        deaf=left(COMMIT_FAILS),
        restarted=COMMIT_FAILS,
    ),
    row("take", "describe", NOT_TAKEN, deaf=left(NOT_TAKEN)),
    row("take", "apply", NOT_TAKEN, deaf=left(NOT_TAKEN)),
    row("take", "update", NOT_TAKEN, deaf=left(NOT_TAKEN)),
    row("take", "commit", TAKE_UNKNOWN, deaf=left(TAKE_UNKNOWN)),
)


def statements(operation: str, rows: Sequence[Row] = ROWS) -> list[str]:
    """Return the names of the statements of an operation, in their order."""
    return [row.statement for row in rows if row.operation == operation]
