"""What MariaDB's and MySQL's errors mean, whichever driver raises them."""

from __future__ import annotations

from ...protocol.faults import Fault

#: The statement alone is undone, unless innodb_rollback_on_timeout is ON.
LOCK_WAIT_TIMEOUT = 1205

# https://mariadb.com/kb/en/mariadb-error-code-reference/,
# https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html and the client's 2000s.
_FAULTS = {
    LOCK_WAIT_TIMEOUT: Fault.BUSY,  # on MariaDB the code of NOWAIT too
    3572: Fault.BUSY,  # NOWAIT on MySQL
    1094: Fault.BUSY,  # MySQL: the session that KILL was to end has just ended by itself
    1213: Fault.DEADLOCK,
    3058: Fault.DEADLOCK,  # of user locks
    1020: Fault.SERIALIZATION,  # record has changed since the snapshot
    1412: Fault.SERIALIZATION,  # so has the table's definition
    159: Fault.SERIALIZATION,  # the same, by InnoDB's own code
    3101: Fault.SERIALIZATION,  # another node of a replication group has changed the same row
    1317: Fault.CANCELED,  # KILL QUERY
    1969: Fault.CANCELED,  # max_statement_time
    3024: Fault.CANCELED,  # max_execution_time
    1146: Fault.SCHEMA,  # no such table
    1049: Fault.SCHEMA,  # no such database
    1054: Fault.SCHEMA,  # no such column
    1044: Fault.PRIVILEGE,
    1142: Fault.PRIVILEGE,
    1143: Fault.PRIVILEGE,
    1290: Fault.READ_ONLY,  # --read-only
    1792: Fault.READ_ONLY,
    1836: Fault.READ_ONLY,
    1047: Fault.READ_ONLY,  # a node of a Galera cluster, without the majority
    # The node lost the majority during a commit, which the other nodes may have. (10.11 has the
    # same code for SKIP LOCKED by a unique key, which no statement here uses.)
    1180: Fault.DISCONNECTED,
    3100: Fault.DISCONNECTED,  # the same in a replication group of MySQL
    1105: Fault.REFUSED,  # an error without a code: the change is too large for a Galera cluster
    4165: Fault.REFUSED,  # a node that cannot replicate just now, so it does not begin
    3098: Fault.REFUSED,  # a table that group replication does not replicate
    1021: Fault.REFUSED,  # disk full
    1030: Fault.REFUSED,  # the storage engine's error
    1037: Fault.REFUSED,  # out of memory
    1041: Fault.REFUSED,
    1665: Fault.REFUSED,  # the binary log takes statements only, READ COMMITTED needs rows
    1114: Fault.REFUSED,  # the table is full
    1153: Fault.REFUSED,  # larger than max_allowed_packet
    1206: Fault.REFUSED,  # no room for more locks
    # The account has as many connections as it may have, or has used up what it may use in an hour.
    1226: Fault.UNREACHABLE,
    1598: Fault.REFUSED,  # the binary log cannot be written
    1637: Fault.REFUSED,  # too many transactions
    1461: Fault.REFUSED,  # no more prepared statements, which EndSession needs on MySQL
    1053: Fault.DISCONNECTED,  # server shutdown in progress
    1927: Fault.DISCONNECTED,  # connection was killed
    3169: Fault.DISCONNECTED,  # the same on MySQL
    3168: Fault.DISCONNECTED,  # the server is not available
    2006: Fault.DISCONNECTED,
    2013: Fault.DISCONNECTED,
    2014: Fault.DISCONNECTED,  # commands out of sync
    2055: Fault.DISCONNECTED,
    4031: Fault.DISCONNECTED,  # disconnected by the server because of inactivity
    0: Fault.DISCONNECTED,  # PyMySQL: the socket was closed before
}

#: Failures to connect that last until the URL, the account or the server is changed.
REFUSALS = frozenset(
    {
        1045,  # access denied: the user or the password
        1049,  # no such database
        1115,  # no such character set
        1130,  # this host may not connect
        1251,  # an authentication that the client does not know
        1524,  # an authentication that the server does not have
        1698,  # access denied, without a password
        1862,  # the password has expired
        2059,  # an authentication that the client cannot load
        2061,  # an authentication that needs TLS
        3118,  # the account is locked, on MySQL
        3159,  # the server takes no connection without TLS
        3955,  # the account is locked after wrong passwords
        4151,  # the account is locked
    }
)


def code_of(error: BaseException, package: str) -> int | None:
    """Return the code of an error of a package's drivers: it is the error's first argument."""
    code = error.args[0] if error.args else None
    known = isinstance(code, int) and type(error).__module__.split(".")[0] == package
    return code if known else None


def fault_of(error: BaseException, package: str) -> Fault | None:
    """Return the fault that an error of a package's drivers means; None for a defect in the
    statement or the program."""
    code = code_of(error, package)
    return None if code is None else _FAULTS.get(code)
