"""What is changed in a statement for the simulation on MariaDB: what it says of time, no more.

Each part of a compound statement begins at its own moment, but the session's ``timestamp`` would
stand still in it. So there the virtual clock itself is read.
"""

from __future__ import annotations

import re
from functools import cache

from tests.simulation.stores.innodb_statements import (
    ENDLESS,
    EVALUATED,
    Statement,
    clock_of,
    with_endless_lock,
)

#: Microseconds since the first moment of a run: a setting that all sessions see at once, in the
#: midst of a statement too, and that means nothing to a server without replicas.
MOMENT = "rpl_semi_sync_master_timeout"

#: The SQL of the virtual clock.
NOW = clock_of(MOMENT)

_BEGINNING = re.compile(r"\b(?:UTC_TIMESTAMP|NOW|CURRENT_TIMESTAMP)\(6\)")
_OTHERS = re.compile(r"\b(?:UTC_|NOW\(|CURRENT_TIME|CURRENT_DATE|LOCALTIME|CURDATE|CURTIME)")
_LONGEST = re.compile(r"\s*SET STATEMENT max_statement_time = ([\d.]+) FOR\s")
_FOR_ROWS = re.compile(r"\s*SET STATEMENT innodb_lock_wait_timeout = (\d+) FOR\s|\bWAIT (\d+)\s*$")
_FOR_BOTH = re.compile(
    r"\s*SET STATEMENT innodb_lock_wait_timeout = (\d+), max_statement_time = ([\d.]+) FOR\s"
)
_SETS = re.compile(r"\s*SET\s+(?!STATEMENT)")
_NEWEST = re.compile(r"SET STATEMENT (/\*M!\d+ [\w ]+= OFF), \*/ ")  # apart from what times it


@cache
def virtual(sql: str) -> Statement:
    """Return what to send in the place of a statement."""
    longest = for_rows = None
    compound = sql.lstrip().startswith("BEGIN NOT ATOMIC")
    # A function would reset what is told to the client; what tells something waits for nothing.
    tells = "LAST_INSERT_ID(" in sql and not compound
    made = EVALUATED.sub(NOW if tells else "simulated_clock()", sql)
    if compound:
        made = _BEGINNING.sub(NOW, made)
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
    made, lock, for_lock = with_endless_lock(made)
    return Statement(
        made,
        longest,
        for_rows,
        lock,
        for_lock,
        compound,
        sets=bool(_SETS.match(sql)),
        kills="KILL CONNECTION" in sql,
    )
