"""Pieces of SQL that several statements have."""

from __future__ import annotations

import math

FREE = "(token IS NULL OR expires_at <= clock_timestamp())"

REMAINING = "extract(epoch FROM expires_at - clock_timestamp())::float8"

# Where the server's default is off, an acquire could be told and then lost in a crash; where
# warnings are not for clients, it would not be heard of that no standby has it.
DURABLE = (
    "pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' "
    "THEN set_config('synchronous_commit', 'on', true) END, "
    "CASE WHEN current_setting('client_min_messages') = 'error' "
    "THEN set_config('client_min_messages', 'warning', true) END)"
)

#: May be lost in a crash: then a lease runs out by itself, a waiter looks for itself.
LAZY = "set_config('synchronous_commit', 'off', true)"

#: Seconds for a row that others have for a moment. Renewals have the same connections.
TURN = 0.025

PATIENT = f"set_config('lock_timeout', '{TURN * 1000:.0f}', true) IS NOT NULL"

#: The lock timeout of one statement in a user's transaction, which has its own again at the end.
#: What waits asks whether it is set, and what restores it is read from what was before.
LIMITED = """before AS MATERIALIZED (
                SELECT current_setting('lock_timeout') AS patience
            ), during AS MATERIALIZED (
                SELECT set_config('lock_timeout', %(patience)s, true) AS patience
                FROM before WHERE before.patience IS NOT NULL
            )"""
IS_LIMITED = "(SELECT pg_catalog.count(patience) FROM during) = 1"
UNLIMITED = "set_config('lock_timeout', before.patience, true)"


def milliseconds(patience: float | None) -> int:
    """Return seconds as the server's settings have them, in which 0 is without a limit."""
    return 0 if patience is None else max(1, math.floor(patience * 1000))
