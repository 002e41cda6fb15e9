"""PostgreSQL's witness: how dblock finds out that the database may have forgotten leases.

An UNLOGGED table is empty after a crash (of one backend is enough), after an immediate stop, in
base backups and on a promoted standby, and keeps its rows when the server is restarted cleanly. So
one row in such a table, ``{prefix}witness``, vouches that nothing was lost since it was written.
What has to outlive that is in one row of an ordinary table, ``{prefix}epoch``.

A dump copies both rows, but not who wrote them: each names the transaction that did, and is
believed only if that is its own ``xmin``.

Where leases may be forgotten nothing is granted until the longest of them is over. When that is,
``grants_from``, is in the epoch's row, since another crash must not bring it forward; the witness
has a copy for the statements that grant. It is never later than the longest TTL from now: what a
clock that was ahead wrote is written anew.

How long a lease may be is in both rows. ``longest_ttl`` of the witness is the longest TTL that is
granted; for a longer one it has to be raised first. That of the epoch is never less: no lease that
is out lasts for longer. Both grow with what is asked for, and when ``valid_until`` is over, a day
later, the next grant begins anew with its own TTL in the witness. A lease that is out then

* was granted since the last such time: its TTL is not above what the witness said until now;
* or before: by a transaction that ended long ago, so the lock table says how long it will last.

The greater of these is the epoch's from then on. So a TTL that nobody asks for is forgotten a day
or two after the last lease with it is over. There is no such time within a pause, so a pause loses
sight of no lease that the table no longer knows.
"""

from __future__ import annotations

from typing import ClassVar

from ...protocol import commands
from ...protocol.state import Witness
from ...protocol.steps import Query, Reply
from ..dialect import Dialect
from .fragments import DURABLE

# A promotion begins a new timeline. Which that will be a standby cannot tell.
SERVER = """SELECT system_identifier::text || '/' || CASE WHEN NOT pg_is_in_recovery()
    THEN pg_catalog.substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
    FROM pg_control_system()"""

WRITER = "pg_current_xact_id()::xid::text"
FIRST_EPOCH = f"SELECT 1, 0, ({SERVER}), {WRITER}"
_BELIEVED = "writer = xmin::text"
#: Nothing has to be waited for.
OPEN = "grants_from <= clock_timestamp()"
#: Fences of grants, above all before them: of a new name, and of one with a row ``l``.
FIRST_FENCE = "greatest(open.epoch, {floor}) + 1"
NEXT_FENCE = "greatest(l.fence, mine.epoch) + 1"

# An epoch is a reading of the clock rather than a count: a standby may have missed the last ones
# and would count to the same again. All names together are not granted once in a microsecond,
# so no fence, and no floor, grows into a later epoch, and none passes 2 ** 53 before the year 2255.
# There is a step only where the clock was put back.
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1e6)::bigint"
_NEXT_EPOCH = f"CASE WHEN {_CLOCK} > e.epoch THEN {_CLOCK} ELSE e.epoch + {2**32} END"

# What a promoted standby that has not heard of any grant takes for the longest TTL: the default.
_UNHEARD_TTL = 30
# No lease that is out lasts for longer, and so no pause does. Of the epoch's row.
_LONGEST = f"pg_catalog.make_interval(secs => coalesce(longest_ttl, {_UNHEARD_TTL}))"

# A little more than a day, so that the TTL of a job of every night stays known.
_VALID = "interval '25 hours'"
# A lock table of more bytes is not read to find out how long leases will last.
_READABLE = 2**26


def known(ttl: str = "%(ttl)s") -> str:
    """After a crash it will be known that a TTL as long as this was granted."""
    return f"longest_ttl >= {ttl} AND valid_until > clock_timestamp()"


class WitnessStatements(Dialect):
    """The statements about the witness, and how others look for it."""

    has_witness: ClassVar[bool] = True
    found: ClassVar[dict[str, str]] = {
        "schema": """(SELECT nspname FROM pg_namespace AS n WHERE n.oid =
            (SELECT relnamespace FROM pg_class AS c WHERE c.oid = s.tableoid))""",
        "container": "current_database()",
        "writer": "s.xmin::text",
        "host": "host(inet_server_addr())",
        "port": "current_setting('port')",
    }

    def literal(self, said: str) -> str:
        # What a backslash means is set by each session.
        escaped = super().literal(said).replace("%", "%%")
        return escaped if "\\" not in said else "E" + escaped.replace("\\", "\\\\")

    def oid(self, table: str) -> str:
        """Return what finds a table in the catalog."""
        return f"{self.literal(table)}::regclass"

    def _name_tables(self) -> None:
        super()._name_tables()
        self.epoch_table = self._named("epoch")
        self.witness_table = self._named("witness")
        #: The epoch, for the FROM of a grant; no row where nothing is granted.
        self.open = f"({self.epoch(OPEN, known())}) AS open"
        #: A pause that is longer was begun by a clock that was ahead.
        self._sane = (
            f"grants_from <= clock_timestamp() + (SELECT {_LONGEST} FROM {self.epoch_table})"
        )

    def epoch(self, *conditions: str) -> str:
        """Select the epoch; no row where the witness is missing or does not meet ``conditions``."""
        where = " AND ".join((_BELIEVED, *conditions))
        return f"SELECT epoch FROM {self.witness_table} WHERE {where}"

    def witness(self) -> Query[Witness | None]:
        return Query(
            f"""SELECT epoch, (SELECT cause FROM {self.epoch_table}),
                extract(epoch FROM grants_from - clock_timestamp())::float8,
                CASE WHEN valid_until > clock_timestamp() THEN longest_ttl ELSE 0 END
            FROM {self.witness_table} WHERE {_BELIEVED} AND {self._sane}""",
            {},
            commands.ReadWitness(),
            read=_witness,
        )

    def write_witness(self) -> Query[int]:
        # Several may be at it. The epoch's row changes each time the witness is written, so who
        # waited for another's change finds that it has read another version, and does nothing.
        #
        # No lease is lost if this is the server, and the timeline, of the last witness, and the
        # lock table is logged: a crash forgets nothing that a grant waited for. Or if there never
        # was a lease. Or if the witness is there, and only its pause is wrong.
        #
        # Then a pause that went on before goes on.
        longest = f"clock_timestamp() + {_LONGEST}"
        return Query(
            f"""WITH here AS MATERIALIZED (
                SELECT ({SERVER}) AS server,
                    (SELECT relpersistence FROM pg_class
                        WHERE oid = {self.oid(self.lock_table)}::oid) AS lock,
                    (SELECT relpersistence FROM pg_class
                        WHERE oid = {self.oid(self.witness_table)}::oid) AS witness
            ), seen AS MATERIALIZED (
                SELECT e.xmin::text AS version, here.server,
                    e.server IS NOT DISTINCT FROM here.server AND {_BELIEVED} AS same,
                    here.lock = 'p' OR e.longest_ttl IS NULL OR EXISTS ({self.epoch()}) AS intact
                FROM {self.epoch_table} AS e, here
                WHERE here.witness = 'u' AND NOT EXISTS ({self.epoch(self._sane)})
            ), written AS (
                UPDATE {self.epoch_table} AS e SET server = seen.server, writer = {WRITER},
                    epoch = CASE WHEN same AND intact THEN e.epoch ELSE {_NEXT_EPOCH} END,
                    cause = CASE WHEN NOT same THEN 'failover' WHEN intact THEN e.cause
                        ELSE 'crash' END,
                    grants_from = CASE WHEN same AND intact THEN least({longest},
                        greatest(e.grants_from, clock_timestamp())) ELSE {longest} END
                FROM seen WHERE e.xmin::text = seen.version
                RETURNING e.epoch, coalesce(e.longest_ttl, 0) AS longest_ttl, {DURABLE},
                    e.grants_from
            )
            INSERT INTO {self.witness_table}
                (id, epoch, longest_ttl, grants_from, valid_until, writer)
            SELECT 1, epoch, longest_ttl, grants_from, grants_from + {_VALID}, {WRITER}
            FROM written
            ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, writer = excluded.writer,
                longest_ttl = excluded.longest_ttl, grants_from = excluded.grants_from,
                valid_until = excluded.valid_until
            RETURNING epoch""",
            {},
            commands.WriteWitness(),
        )

    def record_ttl(self, ttl: float) -> Query[int]:
        # Both at once, so the witness does not say it before the epoch is on disk. And only what
        # was announced: the witness is believed from now on, whatever this commit waits for.
        # Where several transactions begin anew at once, each locks the rows first: all but one see
        # that another has done it. They lock the epoch's row before the witness's, as every
        # statement does that changes both. For a transaction that has waited for a row, and then
        # finds it changed, keeps its lock to the end. Each table has one row, and the key tells the
        # planner: else it expects thousands of rows, and compiles the statement.
        before = f"""CASE WHEN e.longest_ttl <= granted THEN 0
            WHEN pg_relation_size({self.oid(self.lock_table)}) > {_READABLE} THEN e.longest_ttl
            ELSE least(e.longest_ttl, coalesce((
                SELECT max(extract(epoch FROM expires_at - clock_timestamp()))::float8
                FROM {self.lock_table} WHERE token IS NOT NULL), 0)) END"""
        return Query(
            f"""WITH announced AS MATERIALIZED (
                SELECT FROM {self.epoch_table} AS e
                WHERE e.id = 1 AND e.longest_ttl >= %(ttl)s FOR UPDATE
            ), seen AS MATERIALIZED (
                SELECT w.longest_ttl AS granted,
                    coalesce(w.valid_until <= clock_timestamp(), true) AS lapsed
                FROM announced, {self.witness_table} AS w
                WHERE w.id = 1 AND w.writer = w.xmin::text FOR UPDATE OF w
            ), recorded AS (
                UPDATE {self.epoch_table} AS e SET writer = {WRITER},
                    longest_ttl = CASE WHEN lapsed
                        THEN greatest(%(ttl)s, granted, {before}) ELSE e.longest_ttl END
                FROM seen WHERE e.id = 1
                RETURNING lapsed, {DURABLE}
            )
            UPDATE {self.witness_table} AS w SET writer = {WRITER},
                longest_ttl = greatest(%(ttl)s, CASE WHEN NOT lapsed THEN w.longest_ttl END),
                valid_until = CASE WHEN lapsed THEN clock_timestamp() + {_VALID}
                    ELSE w.valid_until END
            FROM recorded WHERE w.id = 1""",
            {"ttl": ttl},
            commands.RecordTtl(ttl),
        )

    def distrust(self, longest: float | None) -> Query[int]:
        # As if another server had granted what is out, and no longer lease than that.
        return Query(
            f"""WITH another AS (
                UPDATE {self.epoch_table} SET server = NULL, writer = {WRITER},
                    longest_ttl = coalesce(%(longest)s::float8, longest_ttl)
                RETURNING id, {DURABLE}
            )
            UPDATE {self.witness_table} AS w SET writer = ''
            FROM another WHERE w.id = another.id""",
            {"longest": longest},
            commands.Distrust(longest),
        )

    def announce_ttl(self, ttl: float) -> Query[int]:
        return Query(
            f"""UPDATE {self.epoch_table} AS e
            SET longest_ttl = greatest(e.longest_ttl, %(ttl)s), writer = {WRITER}
            WHERE EXISTS ({self.epoch()}) RETURNING {DURABLE}""",
            {"ttl": ttl},
            commands.AnnounceTtl(ttl),
        )

    def set_durability(self, durability: str) -> tuple[str, ...]:
        if durability == "volatile":
            return (f"ALTER TABLE {self.table('lock')} SET UNLOGGED",)
        # A crash that nobody has found out yet may have emptied the table: then it must not pass
        # for one that lost nothing.
        return (
            self.placed(
                f"UPDATE {self.epoch_table} SET server = NULL WHERE NOT EXISTS ({self.epoch()}) "
                f"AND EXISTS (SELECT FROM pg_class WHERE oid = {self.oid(self.lock_table)}::oid "
                "AND relpersistence = 'u')"
            ),
            f"ALTER TABLE {self.table('lock')} SET LOGGED",
        )

    def rights(self) -> dict[str, str]:
        return super().rights() | {
            self.table("witness"): "SELECT, INSERT, UPDATE",
            self.table("epoch"): "SELECT, UPDATE",
        }


def _witness(reply: Reply) -> Witness | None:
    return Witness(*reply.rows[0]) if reply.rows else None
