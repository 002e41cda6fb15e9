"""What is changed in a statement for the simulation on MariaDB: what it says of time, no more.

The server reads its clock for ``SYSDATE`` when that is evaluated, which may be after a wait, and
for all else when a statement begins, each one of a compound statement too. The first reads the
virtual clock by a function; the others get it from the session's ``timestamp``, which a session
sets with each statement, but which would stand still in a compound one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

#: The first moment of a run.
EPOCH = "2026-01-01 00:00:00"
#: Microseconds since then: a setting that all sessions see at once, in the midst of a statement
#: too, and that means nothing to a server without replicas.
MOMENT = "rpl_semi_sync_master_timeout"
#: Seconds that no run lasts, and the most that the server lets a statement say.
ENDLESS = 31_536_000

_NOW = f"TIMESTAMPADD(MICROSECOND, @@GLOBAL.{MOMENT}, TIMESTAMP'{EPOCH}.000000')"
FUNCTION = f"""CREATE FUNCTION simulated_clock() RETURNS DATETIME(6) NOT DETERMINISTIC NO SQL
    RETURN {_NOW}"""

_BEGINNING = re.compile(r"\b(?:UTC_TIMESTAMP|NOW|CURRENT_TIMESTAMP)\(6\)")
_EVALUATED = re.compile(r"\bSYSDATE\(6\)")
_OTHERS = re.compile(r"\b(?:UTC_|NOW\(|CURRENT_TIME|CURRENT_DATE|LOCALTIME|CURDATE|CURTIME)")
_LONGEST = re.compile(r"\s*SET STATEMENT max_statement_time = ([\d.]+) FOR\s")
_FOR_ROWS = re.compile(r"\s*SET STATEMENT innodb_lock_wait_timeout = (\d+) FOR\s|\bWAIT (\d+)\s*$")
_FOR_BOTH = re.compile(
    r"\s*SET STATEMENT innodb_lock_wait_timeout = (\d+), max_statement_time = ([\d.]+) FOR\s"
)
_NEWEST = re.compile(r"SET STATEMENT (/\*M!\d+ [\w ]+= OFF), \*/ ")  # apart from what times it
_FOR_LOCK = re.compile(r"\bGET_LOCK\(")
_SETS = re.compile(r"\s*SET\s+(?!STATEMENT)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the server gets it. It waits for ever: its time is the simulation's matter."""

    sql: str
    #: Seconds that it may take in all, and that it may wait for a row, if it says so itself.
    longest: float | None
    for_rows: float | None
    #: The user lock that it waits for, how long, and the same statement without the wait: all SQL.
    lock: str | None
    for_lock: str
    impatient: str
    compound: bool
    #: It changes the session's settings; it ends another session.
    sets: bool
    kills: bool


@cache
def virtual(sql: str) -> Statement:
    """Return what to send in the place of a statement."""
    longest = for_rows = lock = None
    compound = sql.lstrip().startswith("BEGIN NOT ATOMIC")
    # A function would reset what is told to the client; what tells something waits for nothing.
    tells = "LAST_INSERT_ID(" in sql and not compound
    made = _EVALUATED.sub(_NOW if tells else "simulated_clock()", sql)
    if compound:
        made = _BEGINNING.sub(_NOW, made)
    if (compound and _OTHERS.search(made)) or "SYSDATE" in made:
        raise ValueError(f"this asks for the time in another way: {sql}")
    newest = _NEWEST.match(made)
    if newest:
        made = f"SET STATEMENT {made[newest.end() :]}"
    if limited := _LONGEST.match(made):
        longest = float(limited[1])
        made = made[limited.end() :]
    if limited := _FOR_BOTH.match(made):
        for_rows, longest = float(limited[1]), float(limited[2])
        made = f"SET STATEMENT innodb_lock_wait_timeout = {ENDLESS} FOR {made[limited.end() :]}"
    elif limited := _FOR_ROWS.search(made):
        for_rows = float(limited[1] or limited[2])
        if for_rows:
            made = made.replace(limited[0], re.sub(r"\d+", str(ENDLESS), limited[0]))
    if newest and made.startswith("SET STATEMENT "):
        made = f"{newest[0]}{made.removeprefix('SET STATEMENT ')}"
    elif newest:
        made = f"{newest[1].replace(' ', ' SET STATEMENT ', 1)} FOR */ {made}"
    impatient, for_lock = made, ""
    if found := _FOR_LOCK.search(made):
        lock, for_lock, end = _arguments(made, found.end())
        start = made[: found.end()] + lock
        made, impatient = (f"{start}, {seconds}{made[end:]}" for seconds in (ENDLESS, 0))
    return Statement(
        made,
        longest,
        for_rows,
        lock,
        for_lock,
        impatient,
        compound,
        sets=bool(_SETS.match(sql)),
        kills="KILL CONNECTION" in sql,
    )


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
