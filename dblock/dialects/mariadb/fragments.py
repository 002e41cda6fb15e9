"""Pieces of SQL that several statements have, and how values go into them."""

from __future__ import annotations

# UTC_TIMESTAMP is the statement's start. For "has it expired" an old reading is the careful one.
FREE = "(token IS NULL OR expires_at <= UTC_TIMESTAMP(6))"
# What is written or told of the future is read when the row is at hand. SYSDATE has the session's
# time zone; the sessions of dblock's own are set to UTC.
LATER = "SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND"
# Multiplied, since how exact a division is can be set too.
REMAINING = "TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6"

# What writes a guard's row: a value that stays the same is no change to a cluster.
WRITTEN = "writes = COALESCE(writes, 0) + 1"

# A name in a session of the user's, whose character set and sql_mode say what else a quote means,
# and whose driver may not know.
EXACT = "UNHEX(%(name)s)"


def in_hex(name: str) -> dict[str, str]:
    return {"name": name.encode().hex()}


# MariaDB takes a whole transaction back, from 11.6.2 on by default, where a statement would lock a
# row that is newer than what the transaction has read. The row of a lock or of a counter is to be
# judged as it is. A server reads what is in such a comment from that version on, and all of those
# know the setting.
_AS_IT_IS = "innodb_snapshot_isolation = OFF"
NEWEST = f"/*M!110402 SET STATEMENT {_AS_IT_IS} FOR */"


def newest_and(settings: str) -> str:
    """Return :data:`NEWEST` for a statement that has other settings as well."""
    return f"SET STATEMENT /*M!110402 {_AS_IT_IS}, */ {settings} FOR"


def microseconds(ttl: float) -> int:
    return round(ttl * 1_000_000)
