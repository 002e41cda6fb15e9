"""Servers that speak PostgreSQL's or MySQL's protocol and are something else.

They are told by what ``version()`` says.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Unsupported


class LookAlike(NamedTuple):
    """``mark`` is in what it says of itself."""

    mark: str
    name: str
    reason: str


_MYSQL = (
    "dblock's statements are those of MariaDB 10.6, compound ones among them, and are not run on "
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
        "LISTEN/NOTIFY is not supported, older versions have no advisory locks, and there is none "
        "of the WAL by which crashes and failovers are noticed",
    ),
    LookAlike(
        "Redshift",
        "Amazon Redshift",
        "primary keys are not enforced there, so one name could have two locks",
    ),
    LookAlike(
        "Greenplum",
        "Greenplum",
        "UPDATE and FOR UPDATE lock the whole table there, unless its global deadlock detector "
        "is on",
    ),
    LookAlike(
        "Cloudberry",
        "Apache Cloudberry",
        "it is made from Greenplum, where UPDATE and FOR UPDATE lock the whole table, unless the "
        "global deadlock detector is on",
    ),
    LookAlike(
        "Materialize",
        "Materialize",
        "a transaction there either reads or inserts, and no row can be locked",
    ),
    LookAlike(
        "QuestDB",
        "QuestDB",
        "it is made for time series: no row can be locked, and there is no DELETE",
    ),
    LookAlike(
        "CrateDB",
        "CrateDB",
        "it has no transactions: BEGIN and COMMIT are ignored",
    ),
)

MYSQLS = (
    LookAlike(
        "TiDB",
        "TiDB",
        "it has neither SKIP LOCKED nor compound statements, and outside of BEGIN its FOR UPDATE "
        "waits for no lock",
    ),
    LookAlike(
        "Vitess",
        "Vitess",
        "it shards MySQL, whose statements are not MariaDB's, and a transaction over several "
        "shards is READ COMMITTED, whatever was asked for",
    ),
    LookAlike("SingleStore", "SingleStore", _MYSQL),
    LookAlike("MemSQL", "SingleStore", _MYSQL),
    LookAlike("Percona", "Percona Server for MySQL", _MYSQL),
)


_LOOK_ALIKES = {"PostgreSQL": POSTGRESQLS, "MariaDB": MYSQLS}


def recognise(said: str, real: str, comment: str = "") -> LookAlike | None:
    """Return what a server is that calls itself so; None where that is the ``real`` one."""
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
        "With trust_server=True dblock uses this one all the same, and promises nothing"
    )


def unreadable(complaint: str) -> Unsupported:
    """Return the error for a server whose version SQLAlchemy cannot read, as it complains."""
    known = _known(complaint, "PostgreSQL")
    told = complaint if known is None else f"{known.name}, {known.reason}"
    return Unsupported(
        "SQLAlchemy does not take this server for PostgreSQL, and trust_server is of no use: "
        f"{told}"
    )
