"""Pieces of SQL that several statements have, and how values go into them."""

from __future__ import annotations

# UTC_TIMESTAMP is the statement's start. For "has it expired" an old reading is the careful one.
FREE = "(token IS NULL OR expires_at <= UTC_TIMESTAMP(6))"
# What is written or told of the future is read when the row is at hand. SYSDATE has the session's
# time zone; the sessions of dblock's own are set to UTC.
LATER = "SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND"
# Multiplied, since how exact a division is can be set too.
REMAINING = "TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6"

# A name in a session of the user's, whose character set and sql_mode say what else a quote means,
# and whose driver may not know.
EXACT = "UNHEX(%(name)s)"


def in_hex(name: str) -> dict[str, str]:
    return {"name": name.encode().hex()}


def microseconds(ttl: float) -> int:
    return round(ttl * 1_000_000)
