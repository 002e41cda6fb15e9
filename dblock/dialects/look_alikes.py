"""Servers that speak PostgreSQL's or MySQL's protocol, and are neither PostgreSQL nor MariaDB.

dblock recognises them by the result of ``version()``.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Unsupported


class LookAlike(NamedTuple):
    """A server that is not the real one. Its ``version()`` contains ``mark``."""

    mark: str
    name: str
    reason: str


_MYSQL = (
    "dblock uses statements of MariaDB 10.6, such as compound statements, and is not tested on "
    "MySQL"
)

POSTGRESQLS = (
    LookAlike(
        "CockroachDB",
        "CockroachDB",
        "under its default isolation FOR UPDATE is best-effort and can be lost before the "
        "transaction ends, FOR KEY SHARE is an alias of FOR SHARE, and the advisory locks of "
        "sessions are no-ops",
    ),
    LookAlike(
        "-YB-",
        "YugabyteDB",
        "it does not support LISTEN/NOTIFY, its older versions have no advisory locks, and it has "
        "no WAL, from which dblock learns of crashes and failovers",
    ),
    LookAlike(
        "Redshift",
        "Amazon Redshift",
        "it does not enforce primary keys, so one name could have two locks",
    ),
    LookAlike(
        "Greenplum",
        "Greenplum",
        "its UPDATE and FOR UPDATE lock the whole table, unless its global deadlock detector is on",
    ),
    LookAlike(
        "Cloudberry",
        "Apache Cloudberry",
        "like Greenplum, its UPDATE and FOR UPDATE lock the whole table, unless its global "
        "deadlock detector is on",
    ),
    LookAlike(
        "Materialize",
        "Materialize",
        "its transactions either read or insert, and cannot lock a row",
    ),
    LookAlike(
        "QuestDB",
        "QuestDB",
        "it is a database for time series: it cannot lock a row, and has no DELETE",
    ),
    LookAlike(
        "CrateDB",
        "CrateDB",
        "it has no transactions: it ignores BEGIN and COMMIT",
    ),
)

MYSQLS = (
    LookAlike(
        "TiDB",
        "TiDB",
        "it has neither SKIP LOCKED nor compound statements, and its FOR UPDATE waits for no lock "
        "outside of BEGIN",
    ),
    LookAlike(
        "Vitess",
        "Vitess",
        "it shards MySQL, whose statements differ from MariaDB's, and runs a transaction over "
        "several shards in READ COMMITTED, also if you asked for more",
    ),
    LookAlike("SingleStore", "SingleStore", _MYSQL),
    LookAlike("MemSQL", "SingleStore", _MYSQL),
    LookAlike("Percona", "Percona Server for MySQL", _MYSQL),
)


_LOOK_ALIKES = {"PostgreSQL": POSTGRESQLS, "MariaDB": MYSQLS}


def recognise(said: str, real: str, comment: str = "") -> LookAlike | None:
    """Return the look-alike whose version is ``said``; None if it is the ``real`` server."""
    known = _known(said, real)
    if known is not None or real in said:
        return known
    if real == "MariaDB":
        known = _known(comment, real)
        if known is not None:
            return known
        return LookAlike("", f"MySQL {said}", _MYSQL)
    return LookAlike("", repr(said), f"it does not call itself {real}")


def _known(said: str, real: str) -> LookAlike | None:
    return next((one for one in _LOOK_ALIKES[real] if one.mark in said), None)


def refusal(one: LookAlike) -> Unsupported:
    """Return the error for a server that is not the real one."""
    return Unsupported(
        f"this server is {one.name}: {one.reason}. MariaDB, PostgreSQL and SQLite work. "
        "With trust_server=True dblock uses this server anyway, and promises nothing"
    )


def unreadable(complaint: str) -> Unsupported:
    """Return the error for a server whose version SQLAlchemy cannot read or does not accept."""
    if "is not a MariaDB variant" in complaint:  # the server of a mariadb:// URL
        return Unsupported(
            f"SQLAlchemy refuses this server, so dblock cannot use it: {complaint} {_MYSQL}. "
            "MariaDB, PostgreSQL and SQLite work"
        )
    known = _known(complaint, "PostgreSQL")
    told = complaint if known is None else f"{known.name}, {known.reason}"
    return Unsupported(
        "SQLAlchemy cannot read the version of this server, so dblock cannot use it, not even with "
        f"trust_server=True: {told}"
    )
