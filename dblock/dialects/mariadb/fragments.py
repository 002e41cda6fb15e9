"""Pieces of SQL that several statements share, and how values are written for them."""

from __future__ import annotations

# UTC_TIMESTAMP is the statement's start. For "has it expired" an earlier time is the safe one.
FREE = "(token IS NULL OR expires_at <= UTC_TIMESTAMP(6))"
# An expiry that is written or returned counts from the moment when the server has the row: SYSDATE.
# That is in the session's time zone; dblock's own sessions are set to UTC.
LATER = "SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND"
# In seconds. Multiplied, since a setting of the session limits the precision of a division.
REMAINING = "TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6"

# Writes a guard's row. A value that stays the same would not be a change to a cluster.
WRITTEN = "writes = COALESCE(writes, 0) + 1"

# A name in a user's session. There the character set and sql_mode change the meaning of quotes, and
# the driver may not know that.
EXACT = "UNHEX(%(name)s)"


def in_hex(name: str) -> dict[str, str]:
    return {"name": name.encode().hex()}


# With innodb_snapshot_isolation, the default from 11.6.2 on, MariaDB rolls a whole transaction back
# when a statement would lock a row that is newer than the transaction's snapshot. A statement on
# the row of a lock or a counter needs the newest version. Servers from the version in the comment
# on execute its text, and all of them have the setting.
_AS_IT_IS = "innodb_snapshot_isolation = OFF"
NEWEST = f"/*M!110402 SET STATEMENT {_AS_IT_IS} FOR */"


def newest_and(settings: str) -> str:
    """Return :data:`NEWEST` for a statement that has other settings as well."""
    return f"SET STATEMENT /*M!110402 {_AS_IT_IS}, */ {settings} FOR"


def microseconds(ttl: float) -> int:
    return round(ttl * 1_000_000)
