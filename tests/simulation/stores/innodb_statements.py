"""What MariaDB and MySQL have in common in how a statement is changed for the simulation.

The server reads its clock for ``SYSDATE`` when that is evaluated, which may be after a wait, and
for all else when a statement begins. The first reads the virtual clock by a function; the others
get it from the session's ``timestamp``, which a session sets with each statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The first moment of a run.
EPOCH = "2026-01-01 00:00:00"
#: Seconds that no run lasts, and the most that the server lets a statement say.
ENDLESS = 31_536_000

EVALUATED = re.compile(r"\bSYSDATE\(6\)")
_FOR_LOCK = re.compile(r"\bGET_LOCK\(")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the server gets it. It waits for ever: its time is the simulation's matter."""

    sql: str
    #: Seconds that it may take in all, and that it may wait for a row, if it says so itself.
    longest: float | None = None
    for_rows: float | None = None
    #: The user lock that it waits for, and how long: all SQL.
    lock: str | None = None
    for_lock: str = ""
    #: Several statements, one of which may have a handler for the error of another.
    compound: bool = False
    #: Whether its time is limited by what its session says of that.
    limited: bool = True
    #: It changes the session's settings; it ends another session.
    sets: bool = False
    kills: bool = False


def clock_of(setting: str, begins: int = 0) -> str:
    """Return the SQL of the virtual clock: a setting has the microseconds, from a number on."""
    since = f"CAST(@@GLOBAL.{setting} AS SIGNED) - {begins}" if begins else f"@@GLOBAL.{setting}"
    return f"TIMESTAMPADD(MICROSECOND, {since}, TIMESTAMP'{EPOCH}.000000')"


def function_of(clock: str) -> str:
    """Return the statement that makes a function of a clock, which is called again each time."""
    return f"""CREATE FUNCTION simulated_clock() RETURNS DATETIME(6) NOT DETERMINISTIC NO SQL
    RETURN {clock}"""


def with_endless_lock(sql: str) -> tuple[str, str | None, str]:
    """Return a statement that waits for ever for the user lock it asks for, which one that is, and
    how long it would have waited."""
    found = _FOR_LOCK.search(sql)
    if found is None:
        return sql, None, ""
    lock, for_lock, end = _arguments(sql, found.end())
    return f"{sql[: found.end()]}{lock}, {ENDLESS}{sql[end:]}", lock, for_lock


def impatient(sql: bytes) -> bytes:
    """Return a statement as it is sent, without the wait for its user lock."""
    return sql.replace(f", {ENDLESS})".encode(), b", 0)")


def _arguments(sql: str, start: int) -> tuple[str, str, int]:
    """Return the two arguments that begin at a place, and where they end."""
    depth, comma = 0, start
    for place in range(start, len(sql)):
        character = sql[place]
        if character == "," and depth == 0:
            comma = place
        elif character == ")" and depth == 0:
            return sql[start:comma], sql[comma + 1 : place].strip(), place
        depth += (character == "(") - (character == ")")
    raise ValueError(f"a parenthesis is open in {sql!r}")
