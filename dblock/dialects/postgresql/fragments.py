"""Pieces of SQL that several statements share."""

from __future__ import annotations

import math

FREE = "(token IS NULL OR expires_at <= clock_timestamp())"

REMAINING = "extract(epoch FROM expires_at - clock_timestamp())::float8"

# If the server's synchronous_commit is off, a client could learn of a grant that a crash then
# loses. If its client_min_messages is error, the client would not receive the warning that no
# standby has the grant.
DURABLE = (
    "pg_catalog.concat(CASE WHEN current_setting('synchronous_commit') = 'off' "
    "THEN set_config('synchronous_commit', 'on', true) END, "
    "CASE WHEN current_setting('client_min_messages') = 'error' "
    "THEN set_config('client_min_messages', 'warning', true) END)"
)

#: A crash may lose the statement: then a lease expires by itself, or a waiter polls.
LAZY = "set_config('synchronous_commit', 'off', true)"

#: Seconds to wait for a row that other sessions lock for a moment. It is short because renewals use
#: the same connections.
TURN = 0.025

PATIENT = f"set_config('lock_timeout', '{TURN * 1000:.0f}', true) IS NOT NULL"

#: The lock timeout of one statement in a user's transaction, which UNLIMITED restores. The part
#: that waits depends on IS_LIMITED, so that the server sets the timeout first; UNLIMITED depends on
#: `before`, which reads the user's timeout before it is changed.
LIMITED = """before AS MATERIALIZED (
                SELECT current_setting('lock_timeout') AS patience
            ), during AS MATERIALIZED (
                SELECT set_config('lock_timeout', %(patience)s, true) AS patience
                FROM before WHERE before.patience IS NOT NULL
            )"""
IS_LIMITED = "(SELECT pg_catalog.count(patience) FROM during) = 1"
UNLIMITED = "set_config('lock_timeout', before.patience, true)"


def milliseconds(patience: float | None) -> int:
    """Return seconds as a setting of the server in milliseconds; None is 0, which is no limit."""
    return 0 if patience is None else max(1, math.floor(patience * 1000))
