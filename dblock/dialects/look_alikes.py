"""Servers that speak PostgreSQL's or MySQL's protocol, and are none that dblock works on.

dblock recognises them by the result of ``version()``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import Unsupported


class LookAlike(NamedTuple):
    """A server that is not the real one. Its ``version()`` contains ``mark``, in letters of
    either case."""

    mark: str
    name: str
    reason: str


#: The least version of MySQL.
OLDEST_MYSQL = (8, 4)
_OLD = "dblock works on MySQL 8.4 LTS or newer"
_OTHER_ENGINE = "it stores tables in its own way, and promises other things about locked rows"
_ANALYSES = "it is a database for analyses, and cannot lock a row"

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

_GALERA = "each of its nodes takes writes, and none sees the row locks of another"

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
        "it shards MySQL, and runs a transaction over several shards in READ COMMITTED, also if "
        "you asked for more",
    ),
    LookAlike("XtraDB Cluster", "Percona XtraDB Cluster", _GALERA),
    LookAlike("wsrep", "MySQL with Galera", _GALERA),
    LookAlike("PlanetScale", "PlanetScale", "it is Vitess, which shards MySQL"),
    LookAlike("SingleStore", "SingleStore", _OTHER_ENGINE),
    LookAlike("MemSQL", "SingleStore", _OTHER_ENGINE),
    LookAlike("OceanBase", "OceanBase", _OTHER_ENGINE),
    LookAlike("PolarDB", "PolarDB", _OTHER_ENGINE),
    LookAlike("MatrixOne", "MatrixOne", _OTHER_ENGINE),
    LookAlike("Dolt", "Dolt", "its FOR UPDATE locks no row: it merges transactions at the COMMIT"),
    LookAlike("StarRocks", "StarRocks", _ANALYSES),
    LookAlike("Doris", "Apache Doris", _ANALYSES),
    LookAlike("Databend", "Databend", _ANALYSES),
    LookAlike("ClickHouse", "ClickHouse", _ANALYSES),
    LookAlike("Manticore", "Manticore Search", "it is a search engine, and cannot lock a row"),
    LookAlike("Greptime", "GreptimeDB", "it is a database for time series, and cannot lock a row"),
)


# MySQL does not say its name, only three numbers and, after a hyphen, what somebody built it for.
_MYSQLS_FORM = re.compile(r"(\d+)\.(\d+)\.\d+(-.*)?")

_LOOK_ALIKES = {"PostgreSQL": POSTGRESQLS, "MariaDB": MYSQLS}


def recognise(said: str, real: str, comment: str = "") -> LookAlike | None:
    """Return the look-alike whose version is ``said``; None if it is the ``real`` server, or MySQL
    where that is MariaDB."""
    known = _known(said, real)
    if known is not None or real in said:
        return known
    if real == "MariaDB":
        known = _known(comment, real)
        if known is not None:
            return known
        numbers = _MYSQLS_FORM.fullmatch(said)
        if numbers is None:
            return LookAlike("", repr(said), "it calls itself neither MariaDB nor MySQL")
        release = int(numbers[1]), int(numbers[2])
        return None if release >= OLDEST_MYSQL else LookAlike("", f"MySQL {said}", _OLD)
    return LookAlike("", repr(said), f"it does not call itself {real}")


def _known(said: str, real: str) -> LookAlike | None:
    return next((one for one in _LOOK_ALIKES[real] if one.mark.lower() in said.lower()), None)


def refusal(one: LookAlike) -> Unsupported:
    """Return the error for a server that is not the real one."""
    return Unsupported(
        f"this server is {one.name}: {one.reason}. MariaDB, MySQL, PostgreSQL and SQLite "
        "work. With trust_server=True dblock uses this server anyway, and promises nothing"
    )


def unreadable(complaint: str) -> Unsupported:
    """Return the error for a server whose version SQLAlchemy cannot read or does not accept."""
    if "is not a MariaDB variant" in complaint:  # the server of a mariadb:// URL
        return Unsupported(
            f"SQLAlchemy refuses this server by that name: {complaint} "
            "If it is MySQL, give a URL that begins with mysql"
        )
    known = _known(complaint, "PostgreSQL")
    told = complaint if known is None else f"{known.name}, {known.reason}"
    return Unsupported(
        "SQLAlchemy cannot read the version of this server, so dblock cannot use it, not even with "
        f"trust_server=True: {told}"
    )
