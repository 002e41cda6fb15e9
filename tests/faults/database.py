"""What PostgreSQL's tables of dblock say of crashes, read without dblock."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tests.servers import execute

WAITING = """SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()"""
QUEUED = "SELECT cardinality(waiters) FROM dblock_lock"
WRITER = "writer = pg_current_xact_id()::xid::text"


class Epoch(NamedTuple):
    """What outlives a crash."""

    epoch: int
    longest_ttl: float | None


def epoch(url: str) -> Epoch:
    ((number, longest_ttl),) = execute(url, "SELECT epoch, longest_ttl FROM dblock_epoch")
    return Epoch(number, longest_ttl)


def clock(url: str) -> datetime:
    ((now,),) = execute(url, "SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    return now


def shorten_pause(url: str, seconds: float) -> None:
    """Have the pause that goes on end in so many seconds, so that nobody waits for a long one."""
    ends = f"grants_from = clock_timestamp() + interval '{seconds} seconds', {WRITER}"
    execute(
        url,
        f"WITH epoch AS (UPDATE dblock_epoch SET {ends}) UPDATE dblock_witness SET {ends}",
    )


def lapse(url: str) -> None:
    """Have the longest TTL be recorded anew by the next grant, as one of a day later."""
    execute(
        url,
        "UPDATE dblock_witness SET valid_until = clock_timestamp() - interval '1 ms', " + WRITER,
    )


def grants_from(url: str) -> datetime:
    ((moment,),) = execute(url, "SELECT grants_from FROM dblock_witness")
    assert isinstance(moment, datetime)
    return moment


def pause(url: str) -> float:
    """The seconds that are left of it."""
    return (grants_from(url) - clock(url)).total_seconds()


def forget(url: str) -> None:
    """Empty what a crash empties."""
    query = "SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'"
    for (name,) in execute(url, query):
        execute(url, f"TRUNCATE {name}")
