"""What PostgreSQL's errors mean, whichever driver raises them."""

from __future__ import annotations

import re

from ...protocol.faults import Fault

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_FAULTS = {
    "55P03": Fault.BUSY,  # lock_not_available: NOWAIT or lock_timeout
    "40P01": Fault.DEADLOCK,
    "40001": Fault.SERIALIZATION,
    "57014": Fault.CANCELED,
    "42P01": Fault.SCHEMA,  # undefined_table
    "42703": Fault.SCHEMA,  # undefined_column
    "3F000": Fault.SCHEMA,  # invalid_schema_name
    "42501": Fault.PRIVILEGE,
    "25006": Fault.READ_ONLY,
    "0A000": Fault.READ_ONLY,  # an UNLOGGED table, on a standby
    "57P01": Fault.DISCONNECTED,  # admin_shutdown
    "57P02": Fault.DISCONNECTED,  # crash_shutdown
    "57P03": Fault.DISCONNECTED,  # cannot_connect_now
    "57P04": Fault.DISCONNECTED,  # database_dropped
    "57P05": Fault.DISCONNECTED,  # idle_session_timeout
    "25P03": Fault.DISCONNECTED,  # idle_in_transaction_session_timeout
    "25P04": Fault.DISCONNECTED,  # transaction_timeout, of PostgreSQL 17
}

#: Of a statement in a transaction that has failed before.
IN_FAILED_TRANSACTION = "25P02"


# Where the server finds that a table was altered since a statement on it was prepared. The state is
# that of a feature it lacks; but the transaction only wants to be run again.
_STALE_PLAN = ("0A000", "RevalidateCachedQuery")


# libpq has no codes for why it could not connect, only what the server said, which is understood
# here in English alone. In another language the server counts as not reached.
_REFUSALS = re.compile(
    r"(password|Peer|Ident|GSSAPI|certificate) authentication failed|no password supplied"
    r"|(role|database) \".*\" does not exist|is not permitted to log in|pg_hba\.conf"
    r"|no such (database|user)|(SASL|auth) (authentication )?failed"  # PgBouncer
    r"|permission denied for database|unrecognized configuration parameter"
    r"|invalid ([\w ]+ )?value|invalid port number|bad value for"
    r"|certificate verify failed|does not support SSL"
    r"|(certificate|private key) file .* does not exist"
)


def refuses(said: str) -> bool:
    """Return whether what libpq or the server said of a connection holds until somebody changes
    the URL, the role or the server."""
    return _REFUSALS.search(said) is not None


def fault_of(state: str, raised_in: str | None = None) -> Fault | None:
    """Return what an SQLSTATE means; None for a defect that is no fault of the database's.

    ``raised_in`` is the function of the server's that raised it, if that is known.
    """
    if (state, raised_in) == _STALE_PLAN:
        return Fault.ALTERED
    if state in _FAULTS:
        return _FAULTS[state]
    if state.startswith("08"):
        return Fault.DISCONNECTED
    # Resources, system errors, and the server's own defects; and text that the database's encoding
    # does not have.
    refused = state[:2] in ("53", "58", "XX") or state == "22P05"
    return Fault.REFUSED if refused else None
