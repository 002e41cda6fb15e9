"""PostgreSQL's witness: how dblock finds out that the database may have forgotten leases.

An UNLOGGED table is empty after a crash (of one backend is enough), after an immediate stop, in
base backups and on a promoted standby, and keeps its rows when the server is restarted cleanly. So
one row in such a table, ``{prefix}witness``, vouches that nothing was lost since it was written.
One row of an ordinary table, ``{prefix}epoch``, has the values that must survive a crash.

A dump copies both rows, but not their transactions. Each row names the transaction that wrote it,
and dblock believes it only if that is the row's own ``xmin``.

If leases may be forgotten, dblock grants nothing until the longest of them must have expired. That
moment, ``grants_from``, is in the epoch's row, since another crash must not bring it forward; the
witness has a copy for the statements that grant. It is never later than the longest TTL from now: a
later one, from a clock that was ahead, is replaced.

Both rows have a ``longest_ttl``. The witness's is the longest TTL that is granted; a lease with a
longer TTL has to raise it first. The epoch's is never less: no unexpired lease lasts for longer.
Both grow with the TTLs that callers ask for. When ``valid_until`` is over, a day later, the next
grant resets the witness's to its own TTL. A lease that is unexpired then

* was granted since the last reset: its TTL is at most the witness's ``longest_ttl`` until now;
* or before: by a transaction that ended long ago, so the lock table shows its expiry.

The epoch's is the greater of the two from then on. So dblock forgets a TTL that no caller asks for
a day or two after the last lease with it has expired. There is no reset within a pause, so a pause
covers the leases that the table has lost.
"""

from __future__ import annotations

from typing import ClassVar

from ...protocol.commands import (
    AnnounceTtl,
    Distrust,
    ReadWitness,
    RecordTtl,
    WriteWitness,
)
from ...protocol.state import Witness
from ..dialect import Dialect
from ..query import Result
from ..statement import statement
from .fragments import DURABLE

# A promotion begins a new timeline. A standby cannot know its number, so this is NULL there.
SERVER = """SELECT system_identifier::text || '/' || CASE WHEN NOT pg_is_in_recovery()
    THEN pg_catalog.substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
    FROM pg_control_system()"""

WRITER = "pg_current_xact_id()::xid::text"
FIRST_EPOCH = f"SELECT 1, 0, ({SERVER}), {WRITER}"
_BELIEVED = "writer = xmin::text"
#: There is no pause, or it is over.
OPEN = "grants_from <= clock_timestamp()"
#: The fence of a grant, above all earlier ones: for a new name, and for a name with a row ``l``.
FIRST_FENCE = "greatest(open.epoch, {floor}) + 1"
NEXT_FENCE = "greatest(l.fence, mine.epoch) + 1"

# An epoch is a reading of the clock rather than a count: a standby may have missed the last ones
# and would count to the same number again. All names together have less than one grant in a
# microsecond, so no fence and no floor grows into a later epoch, and none passes 2 ** 53 before the
# year 2255. The step of 2 ** 32 is for a clock that was put back.
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1e6)::bigint"
_NEXT_EPOCH = f"CASE WHEN {_CLOCK} > e.epoch THEN {_CLOCK} ELSE e.epoch + {2**32} END"

# Seconds: the default TTL, for a promoted standby that has received no record of a grant.
_UNHEARD_TTL = 30
# From the epoch's row. No unexpired lease lasts for longer, so no pause does.
_LONGEST = f"pg_catalog.make_interval(secs => coalesce(longest_ttl, {_UNHEARD_TTL}))"

# A little more than a day, so that the TTL of a nightly job stays recorded.
_VALID = "interval '25 hours'"
# Bytes. A larger lock table is not read to find the latest expiry.
_READABLE = 2**26


def known(ttl: str = "%(ttl)s") -> str:
    """Whether the witness has recorded a TTL as long as this, for the pause after a crash."""
    return f"longest_ttl >= {ttl} AND valid_until > clock_timestamp()"


def _witness(result: Result) -> Witness | None:
    return Witness(*result.rows[0]) if result.rows else None


class WitnessStatements(Dialect):
    """The statements that write the witness, and the conditions on it for other statements."""

    found: ClassVar[dict[str, str]] = {
        "schema": """(SELECT nspname FROM pg_namespace AS n WHERE n.oid =
            (SELECT relnamespace FROM pg_class AS c WHERE c.oid = s.tableoid))""",
        "container": "current_database()",
        "writer": "s.xmin::text",
        "host": "host(inet_server_addr())",
        "port": "current_setting('port')",
    }

    def literal(self, said: str) -> str:
        # In a plain literal the meaning of a backslash depends on the session's settings.
        escaped = super().literal(said).replace("%", "%%")
        return escaped if "\\" not in said else "E" + escaped.replace("\\", "\\\\")

    def oid(self, table: str) -> str:
        """Return the SQL that finds a table in the catalog."""
        return f"{self.literal(table)}::regclass"

    def _name_tables(self) -> None:
        super()._name_tables()
        self.epoch_table = self._named("epoch")
        self.witness_table = self._named("witness")
        #: The epoch, for the FROM of a grant; no row where nothing is granted.
        self.open = f"({self.epoch(OPEN, known())}) AS open"
        #: The pause is no longer than the longest TTL. A clock that was ahead wrote a longer one.
        self._sane = (
            f"grants_from <= clock_timestamp() + (SELECT {_LONGEST} FROM {self.epoch_table})"
        )

    def epoch(self, *conditions: str) -> str:
        """Select the epoch; no row where the witness is missing or does not meet ``conditions``."""
        where = " AND ".join((_BELIEVED, *conditions))
        return f"SELECT epoch FROM {self.witness_table} WHERE {where}"

    @statement(ReadWitness, read=_witness)
    def witness(self) -> str:
        return f"""SELECT epoch, (SELECT cause FROM {self.epoch_table}),
                extract(epoch FROM grants_from - clock_timestamp())::float8,
                CASE WHEN valid_until > clock_timestamp() THEN longest_ttl ELSE 0 END
            FROM {self.witness_table} WHERE {_BELIEVED} AND {self._sane}"""

    @statement(WriteWitness)
    def write_witness(self) -> str:
        # Several sessions may run it at once. Each time the witness is written the epoch's row
        # changes too. So a session that waited for another's change finds that it has read an older
        # version of the row, and does nothing.
        #
        # No lease is lost if the server and its timeline are still the last witness's (`same`), and
        # one of three is true (`intact`): the lock table is logged, so a crash forgets no grant,
        # because a grant waits for the disk; or there never was a lease; or the witness is there,
        # and only its pause is wrong. Then there is no new epoch, and an earlier pause goes on.
        longest = f"clock_timestamp() + {_LONGEST}"
        return f"""WITH here AS MATERIALIZED (
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
            RETURNING epoch"""

    @statement(RecordTtl)
    def record_ttl(self) -> str:
        # One statement writes both rows, so that the witness does not have the TTL before the epoch
        # is on disk. It records only a TTL that was announced: other sessions believe the witness
        # from its commit on, even if the commit's wait for a standby was cut off.
        # Several sessions may reset the witness at once: they lock the rows first, so all but one
        # see that it is done. Every statement that changes both rows locks the epoch's first: a
        # statement that waits for the row and finds it changed keeps its lock until the transaction
        # ends, so another order could deadlock. Each table has one row, and `id = 1` shows that to
        # the planner, which would otherwise expect enough rows to JIT-compile the statement.
        before = f"""CASE WHEN e.longest_ttl <= granted THEN 0
            WHEN pg_relation_size({self.oid(self.lock_table)}) > {_READABLE} THEN e.longest_ttl
            ELSE least(e.longest_ttl, coalesce((
                SELECT max(extract(epoch FROM expires_at - clock_timestamp()))::float8
                FROM {self.lock_table} WHERE token IS NOT NULL), 0)) END"""
        return f"""WITH announced AS MATERIALIZED (
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
            FROM recorded WHERE w.id = 1"""

    @statement(Distrust)
    def distrust(self) -> str:
        # As if another server had granted all leases, with ``longest`` as their longest TTL.
        return f"""WITH another AS (
                UPDATE {self.epoch_table} SET server = NULL, writer = {WRITER},
                    longest_ttl = coalesce(%(longest)s::float8, longest_ttl)
                RETURNING id, {DURABLE}
            )
            UPDATE {self.witness_table} AS w SET writer = ''
            FROM another WHERE w.id = another.id"""

    @statement(AnnounceTtl)
    def announce_ttl(self) -> str:
        return f"""UPDATE {self.epoch_table} AS e
            SET longest_ttl = greatest(e.longest_ttl, %(ttl)s), writer = {WRITER}
            WHERE EXISTS ({self.epoch()}) RETURNING {DURABLE}"""

    def set_durability(self, durability: str) -> tuple[str, ...]:
        if durability == "volatile":
            return (f"ALTER TABLE {self.table('lock')} SET UNLOGGED",)
        # A crash that no session has noticed yet may have emptied the UNLOGGED table. Without this
        # UPDATE the next witness would find a logged table, and conclude that no lease was lost.
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
