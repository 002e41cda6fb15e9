"""What PostgreSQL's tables of dblock say of crashes, read without dblock."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tests.servers import execute


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
    execute(
        url,
        "UPDATE dblock_witness SET writer = pg_current_xact_id()::xid::text, "
        f"grants_from = clock_timestamp() + interval '{seconds} seconds'",
    )


def grants_from(url: str) -> datetime:
    ((moment,),) = execute(url, "SELECT grants_from FROM dblock_witness")
    assert isinstance(moment, datetime)
    return moment
