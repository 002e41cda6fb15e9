"""What MariaDB's errors mean, whichever driver raises them."""

from __future__ import annotations

from ...protocol.faults import Fault

# https://mariadb.com/kb/en/mariadb-error-code-reference/ and the client's 2000s
_FAULTS = {
    1205: Fault.BUSY,  # lock wait timeout, NOWAIT: the statement alone is undone
    1213: Fault.DEADLOCK,
    1020: Fault.SERIALIZATION,  # record has changed since the snapshot
    1412: Fault.SERIALIZATION,  # so has the table's definition
    159: Fault.SERIALIZATION,  # the same, told by InnoDB itself
    1317: Fault.CANCELED,  # KILL QUERY
    1969: Fault.CANCELED,  # max_statement_time
    1146: Fault.SCHEMA,  # no such table
    1049: Fault.SCHEMA,  # no such database
    1054: Fault.SCHEMA,  # no such column
    1044: Fault.PRIVILEGE,
    1142: Fault.PRIVILEGE,
    1143: Fault.PRIVILEGE,
    1290: Fault.READ_ONLY,  # --read-only
    1792: Fault.READ_ONLY,
    1836: Fault.READ_ONLY,
    1021: Fault.REFUSED,  # disk full
    1030: Fault.REFUSED,  # the storage engine's error
    1037: Fault.REFUSED,  # out of memory
    1041: Fault.REFUSED,
    1665: Fault.REFUSED,  # the binary log takes statements only, READ COMMITTED needs rows
    1114: Fault.REFUSED,  # the table is full
    1053: Fault.DISCONNECTED,  # server shutdown in progress
    1927: Fault.DISCONNECTED,  # connection was killed
    2006: Fault.DISCONNECTED,
    2013: Fault.DISCONNECTED,
    2014: Fault.DISCONNECTED,  # commands out of sync
    2055: Fault.DISCONNECTED,
    4031: Fault.DISCONNECTED,  # disconnected by the server because of inactivity
    0: Fault.DISCONNECTED,  # PyMySQL: the socket was closed before
}


def fault_of(error: BaseException, package: str) -> Fault | None:
    """Return what an error of a package's drivers means, which has its code first; None for a
    defect that is no fault of the database's."""
    code = error.args[0] if error.args else None
    if isinstance(code, int) and type(error).__module__.split(".")[0] == package:
        return _FAULTS.get(code)
    return None
