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

#: The server refuses a statement, because its transaction has failed before.
IN_FAILED_TRANSACTION = "25P02"


# The SQLSTATE and the server's function when a table was altered since a statement on it was
# prepared. The SQLSTATE means "feature not supported", but it is enough to run the transaction
# again.
_STALE_PLAN = ("0A000", "RevalidateCachedQuery")


# When it cannot connect, libpq has no code for the reason, only the server's message. dblock
# understands it in English alone; a server with messages in another language counts as not reached.
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
    """Return whether the failure to connect lasts until the URL, the role or the server is changed,
    by the message of libpq or the server."""
    return _REFUSALS.search(said) is not None


def fault_of(state: str, raised_in: str | None = None) -> Fault | None:
    """Return the fault that an SQLSTATE means; None for a defect in the statement or the program.

    ``raised_in`` is the server's function that raised it, if it is known.
    """
    if (state, raised_in) == _STALE_PLAN:
        return Fault.ALTERED
    if state in _FAULTS:
        return _FAULTS[state]
    if state.startswith("08"):
        return Fault.DISCONNECTED
    # The classes are resources, system errors and the server's own defects; 22P05 is for a
    # character that the database's encoding lacks.
    refused = state[:2] in ("53", "58", "XX") or state == "22P05"
    return Fault.REFUSED if refused else None
