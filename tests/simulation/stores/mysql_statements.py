"""What is changed in a statement for the simulation on MySQL: what it says of time, no more.

What is asked for may be a packet of several statements. Each of them is sent by itself, when the
server would begin it, so each is changed by itself too.
"""

from __future__ import annotations

import re
from functools import cache

from dblock.dialects.query import THEN
from tests.simulation.stores.innodb_statements import (
    EVALUATED,
    Statement,
    clock_of,
    with_endless_lock,
)

#: Microseconds, of which there are some at the first moment of a run: a setting that all sessions
#: see at once, in the midst of a statement too, and that means nothing where nobody fails to
#: connect. It may not be 0.
MOMENT, BEGINS = "max_connect_errors", 1_000_000_000_000
#: The SQL of the virtual clock.
NOW = clock_of(MOMENT, BEGINS)

_LONGEST = re.compile(r"(?<=/\*\+ )(.*\s)?MAX_EXECUTION_TIME\((\d+)\)(?= \*/)")
_SETS = re.compile(r"SET\b.*\b(innodb_lock_wait_timeout|max_execution_time) = ", re.DOTALL)
_SELECTS = re.compile(r"\s*(/\*.*?\*/\s*)?(SELECT|WITH)\b")


@cache
def virtual(sql: str) -> tuple[Statement, ...]:
    """Return what to send in the place of what is asked for."""
    return tuple(map(_virtual, sql.split(THEN)))


def _virtual(sql: str) -> Statement:
    longest, selects = None, bool(_SELECTS.match(sql))
    # A function would reset what is told to the client; what tells something waits for nothing.
    made = EVALUATED.sub(NOW if "LAST_INSERT_ID(" in sql else "simulated_clock()", sql)
    if limited := _LONGEST.search(made):
        longest = float(limited[2]) / 1000
        made = made.replace(limited[0], limited[1] or "")
    if "SYSDATE" in made or "MAX_EXECUTION_TIME" in made:
        raise ValueError(f"this says something of the time in another way: {sql}")
    made, lock, for_lock = with_endless_lock(made)
    return Statement(
        made,
        longest,
        lock=lock,
        for_lock=for_lock,
        limited=selects,
        sets=bool(_SETS.search(sql)),
        kills="KILL" in sql,
    )
